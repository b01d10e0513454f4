"""Batch jobs in `abs register`: one line per job, and tokens that only a person removes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest

from abs_cli import tokens
from abs_clients.kafka.cluster import close_clusters
from abs_core.births.parent import note, parent_key
from abs_core.contracts import Conflict, Inventory
from abs_core.errors import (
    AbsError,
    ContentionError,
    CorruptionError,
    ProtocolError,
    RefusedError,
    UnavailableError,
)
from abs_core.model import MOVED, Decision, JobState, NotedToken, job_key
from abs_core.registers import MemoryRegister
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.postgres import PostgresOptions, PostgresRegister
from abs_sinks.s3 import S3Options
from abs_sinks.s3.register import S3Register
from tests.kit.command import abs_
from tests.kit.kafka import delete_topics

pytestmark = pytest.mark.services

TOKENS = ("2026-11-01", "2026-11-02", "2026-11-03")


def parsed(*arguments: str) -> Any:
    return json.loads(abs_(*arguments, "--json").stdout)


def put(register: Inventory, state: JobState) -> None:
    present = register.load(state.job)
    version = None if present is None else present.version
    assert not isinstance(register.compare_and_set(state.job, version, state), Conflict)


@dataclass(frozen=True, slots=True)
class Place:
    """Where registers are: as the command line names it, and as the sink sees it."""

    url: str
    register: Inventory


SYSTEMS = ("postgres", "kafka", "s3")
EVERYWHERE = pytest.mark.parametrize("place", SYSTEMS, indirect=True)
SELDOM_BUT_POSTGRES = pytest.mark.parametrize(
    "place",
    ["postgres", *(pytest.param(s, marks=pytest.mark.campaign) for s in SYSTEMS[1:])],
    indirect=True,
)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A stream, and a batch job of three tokens of which the last is noted on the third."""
    opened = {"postgres": _postgres, "kafka": _kafka, "s3": _s3}[request.param]
    with opened(request) as place:
        _fill(place.register)
        yield place


@pytest.fixture
def register(place: Place) -> Inventory:
    return place.register


@pytest.fixture
def url(place: Place) -> str:
    return place.url


@contextmanager
def _postgres(request: pytest.FixtureRequest) -> Iterator[Place]:
    database = request.getfixturevalue("database")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table t (id bigint)")
    yield Place(
        database, PostgresRegister(PostgresOptions.parse({"url": database, "dbtable": "t"}))
    )


@contextmanager
def _kafka(request: pytest.FixtureRequest) -> Iterator[Place]:
    broker = request.getfixturevalue("kafka")
    broker.start()
    topic = f"register-{secrets.token_hex(6)}"
    given = {"kafka.bootstrap.servers": broker.bootstrap, "registertopic": topic}
    options = KafkaOptions.parse(given)
    yield Place(f"kafka://{broker.bootstrap}/{topic}", KafkaRegister(options))
    delete_topics(options.kafka, [topic])
    close_clusters()


@contextmanager
def _s3(request: pytest.FixtureRequest) -> Iterator[Place]:
    store, prefix = (request.getfixturevalue(name) for name in ("store", "prefix"))
    server = {"endpoint": store.endpoint, "region": store.region}
    path = f"s3://{store.bucket}/{prefix}"
    register = S3Register(S3Options.parse({"path": path, **server}))
    yield Place(f"{path}?{urlencode(server)}", register)


def _fill(register: Inventory) -> None:
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


def names(register: Inventory) -> Sequence[str]:
    return sorted(stored.state.job for stored in register.jobs())


@SELDOM_BUT_POSTGRES
def test_a_batch_job_is_one_line(register: Inventory, url: str) -> None:
    stream, batch = parsed("register", "list", "--url", url)
    assert stream["job"] == "clicks"
    assert (batch["job"], batch["tokens"], batch["open"], batch["lost"]) == ("nightly", 3, 0, [])
    lines = abs_("register", "list", "--url", url).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["job", "clicks", "nightly"]
    assert "3 tokens" in lines[2]
    shown = parsed("register", "show", "nightly", "--url", url)
    assert [noted["token"] for noted in shown["noted"]] == list(TOKENS)
    one = parsed("register", "show", "nightly@2026-11-02", "--url", url)
    assert one["frontier"] == 0


@SELDOM_BUT_POSTGRES
def test_a_lost_register_is_shown(register: Inventory, url: str) -> None:
    register.retire("nightly@2026-11-02")
    (_, batch) = parsed("register", "list", "--url", url)
    assert (batch["tokens"], batch["lost"]) == (2, ["2026-11-02"])
    assert "2 tokens, 1 lost" in abs_("register", "list", "--url", url).stdout


@EVERYWHERE
def test_old_tokens_are_retired_by_a_persons_word(register: Inventory, url: str) -> None:
    command = ("register", "retire", "nightly", "--url", url)
    before = names(register)
    answered = abs_(*command, "--tokens-before", "2026-11-03", answer="n\n")
    assert answered.exit_code == 1
    assert "2 token(s) of nightly" in answered.output
    assert names(register) == before
    assert abs_(*command, "--tokens-before", "2026-11-03", "--yes").exit_code == 0
    assert names(register) == ["clicks", "nightly@", "nightly@2026-11-03"]
    parent = register.load(parent_key("nightly"))
    assert parent is not None
    assert [entry.token for entry in parent.state.tokens] == ["2026-11-03"]
    assert abs_(*command, "--tokens-before", "2026-11-03", "--yes").exit_code == 0


@SELDOM_BUT_POSTGRES
def test_a_token_with_an_open_decision_is_kept(register: Inventory, url: str) -> None:
    stored = register.load("nightly@2026-11-01")
    assert stored is not None
    decided = Decision(stored.state.lineage, 0, 1, ())
    put(register, replace(stored.state, frontier=None, open=(decided,)))
    result = abs_(
        "register", "retire", "nightly", "--url", url, "--tokens-before", "2027-01-01", "--yes"
    )
    assert "kept 2026-11-01" in result.output
    assert names(register) == ["clicks", "nightly@", "nightly@2026-11-01"]


@SELDOM_BUT_POSTGRES
def test_the_note_of_a_moved_token_is_kept(register: Inventory, url: str) -> None:
    stored = register.load("nightly@2026-11-01")
    assert stored is not None
    moved = f"{MOVED}elsewhere: {stored.state.lineage}"
    put(register, replace(stored.state, lineage=moved))
    command = ("register", "retire")
    result = abs_(*command, "nightly", "--url", url, "--tokens-before", "2027-01-01", "--yes")
    assert "kept 2026-11-01: its register was moved to elsewhere" in result.output
    assert names(register) == ["clicks", "nightly@", "nightly@2026-11-01"]
    one = abs_(*command, "nightly@2026-11-01", "--url", url, answer="n\n")
    assert "was moved to elsewhere" in one.output
    assert names(register) == ["clicks", "nightly@", "nightly@2026-11-01"]


@SELDOM_BUT_POSTGRES
def test_one_token_is_retired_and_forgotten(register: Inventory, url: str) -> None:
    assert abs_("register", "retire", "nightly@2026-11-02", "--url", url, "--yes").exit_code == 0
    (_, batch) = parsed("register", "list", "--url", url)
    assert (batch["tokens"], batch["lost"]) == (2, [])


class Keeping(MemoryRegister):
    """A store that refuses, in its own way, to delete one register, or is away from then on."""

    def __init__(self, error: AbsError) -> None:
        super().__init__()
        self._error = error

    def retire(self, job: str) -> bool:
        if job == "nightly@2026-11-02":
            raise self._error
        return super().retire(job)


def noted_tokens(register: Inventory) -> list[str]:
    parent = register.load(parent_key("nightly"))
    assert parent is not None
    return [entry.token for entry in parent.state.tokens]


@pytest.mark.parametrize("error", [ContentionError, ProtocolError, RefusedError, CorruptionError])
def test_a_token_that_cannot_be_deleted_keeps_no_other_one(error: type[AbsError]) -> None:
    register = Keeping(error("it stays", remedy="do this"))
    _fill(register)
    kept = tokens.retire(register, "nightly", TOKENS)
    assert [(token, str(why)) for token, why in kept] == [
        ("2026-11-02", f"it stays [{error.code}] What to do: do this")
    ]
    assert names(register) == ["clicks", "nightly@", "nightly@2026-11-02"]
    assert noted_tokens(register) == ["2026-11-02"]


def test_a_register_that_is_away_ends_it_and_what_was_deleted_is_forgotten() -> None:
    register = Keeping(UnavailableError("it is away"))
    _fill(register)
    with pytest.raises(UnavailableError):
        tokens.retire(register, "nightly", TOKENS)
    assert names(register) == ["clicks", "nightly@", "nightly@2026-11-02", "nightly@2026-11-03"]
    assert noted_tokens(register) == ["2026-11-02", "2026-11-03"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nightly"], "each of its 3 tokens has a register"),
        (["nightly", "--tokens-before", "soon"], "not a date"),
        (["clicks", "--tokens-before", "2026-11-03"], "no batch job"),
        (["unknown"], "There is no register of job"),
    ],
)
@SELDOM_BUT_POSTGRES
def test_what_cannot_be_retired_so_is_said(
    register: Inventory, url: str, arguments: list[str], said: str
) -> None:
    before = names(register)
    result = abs_("register", "retire", *arguments, "--url", url, "--yes")
    assert result.exit_code != 0
    assert said in str(result.exception or "") + result.output
    assert names(register) == before
