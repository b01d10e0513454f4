"""Batch jobs in `abs register`: one line per job, and tokens that only a person removes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner, Result

from abs_cli.main import app
from abs_core.contracts import Conflict
from abs_core.model import Decision, JobState, NotedToken, job_key
from abs_core.parent import note, parent_key
from abs_sinks.postgres import PostgresOptions, PostgresRegister

pytestmark = pytest.mark.services

TOKENS = ("2026-11-01", "2026-11-02", "2026-11-03")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def parsed(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def put(register: PostgresRegister, state: JobState) -> None:
    present = register.load(state.job)
    version = None if present is None else present.version
    assert not isinstance(register.compare_and_set(state.job, version, state), Conflict)


@pytest.fixture
def register(database: str) -> PostgresRegister:
    """A stream, and a batch job of three tokens of which the last is noted on the third."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table t (id bigint)")
    register = PostgresRegister(PostgresOptions.parse({"url": database, "dbtable": "t"}))
    put(register, JobState("a" * 16, "clicks", "postgres:t", "lineage", 1, "run", frontier=4))
    parent: JobState | None = None
    for number, token in enumerate(TOKENS):
        key = job_key("nightly", token)
        state = JobState(f"{number:016x}", key, "postgres:t", f"batch:{key}", 1, "run", frontier=0)
        put(register, state)
        entry = NotedToken(token, state.register, 1, f"{token}T06:00:00+00:00")
        parent = note(parent, key, entry, "postgres:t", "f" * 16).state  # type: ignore[union-attr]
    assert parent is not None
    put(register, parent)
    return register


def names(register: PostgresRegister) -> Sequence[str]:
    return [stored.state.job for stored in register.jobs()]


def test_a_batch_job_is_one_line(register: PostgresRegister, database: str) -> None:
    stream, batch = parsed("register", "list", "--url", database)
    assert stream["job"] == "clicks"
    assert (batch["job"], batch["tokens"], batch["open"], batch["lost"]) == ("nightly", 3, 0, [])
    lines = run("register", "list", "--url", database).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["job", "clicks", "nightly"]
    assert "3 tokens" in lines[2]
    shown = parsed("register", "show", "nightly", "--url", database)
    assert [noted["token"] for noted in shown["noted"]] == list(TOKENS)
    one = parsed("register", "show", "nightly@2026-11-02", "--url", database)
    assert one["frontier"] == 0


def test_a_lost_register_is_shown(register: PostgresRegister, database: str) -> None:
    register.retire("nightly@2026-11-02")
    (_, batch) = parsed("register", "list", "--url", database)
    assert (batch["tokens"], batch["lost"]) == (2, ["2026-11-02"])
    assert "2 tokens, 1 lost" in run("register", "list", "--url", database).stdout


def test_old_tokens_are_retired_by_a_persons_word(
    register: PostgresRegister, database: str
) -> None:
    command = ("register", "retire", "nightly", "--url", database)
    before = names(register)
    answered = CliRunner().invoke(app, [*command, "--tokens-before", "2026-11-03"], input="n\n")
    assert answered.exit_code == 1
    assert "2 token(s) of nightly" in answered.output
    assert names(register) == before
    assert run(*command, "--tokens-before", "2026-11-03", "--yes").exit_code == 0
    assert names(register) == ["clicks", "nightly@", "nightly@2026-11-03"]
    parent = register.load(parent_key("nightly"))
    assert parent is not None
    assert [entry.token for entry in parent.state.tokens] == ["2026-11-03"]
    assert run(*command, "--tokens-before", "2026-11-03", "--yes").exit_code == 0


def test_a_token_with_an_open_decision_is_kept(register: PostgresRegister, database: str) -> None:
    stored = register.load("nightly@2026-11-01")
    assert stored is not None
    decided = Decision(stored.state.lineage, 0, 1, ())
    put(register, replace(stored.state, frontier=None, open=(decided,)))
    result = run(
        "register", "retire", "nightly", "--url", database, "--tokens-before", "2027-01-01", "--yes"
    )
    assert "kept 2026-11-01" in result.output
    assert names(register) == ["clicks", "nightly@", "nightly@2026-11-01"]


def test_one_token_is_retired_and_forgotten(register: PostgresRegister, database: str) -> None:
    assert (
        run("register", "retire", "nightly@2026-11-02", "--url", database, "--yes").exit_code == 0
    )
    (_, batch) = parsed("register", "list", "--url", database)
    assert (batch["tokens"], batch["lost"]) == (2, [])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nightly"], "each of its 3 tokens has a register"),
        (["nightly", "--tokens-before", "soon"], "no date"),
        (["clicks", "--tokens-before", "2026-11-03"], "no batch job"),
        (["unknown"], "There is no register of a job"),
    ],
)
def test_what_cannot_be_retired_so_is_said(
    register: PostgresRegister, database: str, arguments: list[str], said: str
) -> None:
    before = names(register)
    result = run("register", "retire", *arguments, "--url", database, "--yes")
    assert result.exit_code != 0
    assert said in str(result.exception or "") + result.output
    assert names(register) == before
