"""The register in PostgreSQL is one linearizable cell per job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import psycopg
import pytest

from abs_clients.postgres.address import Address
from abs_clients.postgres.connection import Tag
from abs_clients.postgres.pool import close_idle, leased
from abs_core.contracts import Conflict, RegisterStore
from abs_core.errors import ContentionError, CorruptionError, ProtocolError, RefusedError
from abs_core.model import Committable, Decision, HandleName, JobState
from abs_services import PostgresService, in_database
from abs_sinks.postgres import PostgresOptions, PostgresRegister
from abs_sinks.postgres.register import SWAP_TRIES, persistently, swapping
from abs_testing.case import raises
from tests.fault_proxy.postgres import LossyProxy

pytestmark = pytest.mark.services

FIRST = JobState("0123456789abcdef", "job", "postgres:1/db/public.t", "lineage", 1, "run")
SECOND = replace(FIRST, generation=2, run="another", superseded=("run",))
HANDLE = HandleName(FIRST.register, "job", 1, 0, 0, "ab")


@pytest.fixture
def options(database: str) -> Iterator[PostgresOptions]:
    yield PostgresOptions.parse({"url": database, "dbtable": "t", "locktimeout": "1"})
    close_idle()


@pytest.fixture
def register(options: PostgresOptions) -> PostgresRegister:
    return PostgresRegister(options)


def test_it_is_a_register_store(register: PostgresRegister) -> None:
    assert isinstance(register, RegisterStore)


def test_reading_makes_nothing(register: PostgresRegister, database: str) -> None:
    assert register.load("job") is None
    assert register.jobs() == []
    assert register.others_on("target", "job") == []
    with psycopg.connect(database) as db:
        assert db.execute("select to_regnamespace('abs')").fetchone() == (None,)


def test_what_was_set_is_loaded(register: PostgresRegister) -> None:
    committable = Committable(HANDLE, 5, "xxh3_128:00", (("protocol", "2pc"), ("q", "'\"\\é%")))
    state = replace(
        FIRST,
        frontier=3,
        open=(Decision("lineage", 4, 1, (committable,)),),
        abandoned=(6, 7),
    )
    version = register.compare_and_set("job", None, state)
    stored = register.load("job")
    assert stored is not None
    assert (stored.state, stored.version) == (state, version)


def test_only_the_expected_version_is_replaced(register: PostgresRegister) -> None:
    version = register.compare_and_set("job", None, FIRST)
    assert isinstance(version, str)
    assert register.compare_and_set("job", None, SECOND) == Conflict()
    assert register.compare_and_set("job", "99", SECOND) == Conflict()
    assert register.compare_and_set("other", version, replace(SECOND, job="other")) == Conflict()
    newer = register.compare_and_set("job", version, SECOND)
    assert isinstance(newer, str)
    assert newer != version
    assert register.compare_and_set("job", version, FIRST) == Conflict()
    stored = register.load("job")
    assert stored is not None
    assert stored.state == SECOND


def test_a_request_from_before_a_retirement_does_not_meet_its_version_again(
    register: PostgresRegister,
) -> None:
    version = register.compare_and_set("job", None, FIRST)
    assert isinstance(version, str)
    assert register.retire("job")
    reborn = replace(FIRST, register="fedcba9876543210")
    assert register.compare_and_set("job", None, reborn) == version
    assert register.compare_and_set("job", version, SECOND) == Conflict()


def test_one_of_many_wins_from_the_very_first_write_on(options: PostgresOptions) -> None:
    # The schema is made by all of them at once, too.
    racers = 8
    ready = Barrier(racers)

    def race(number: int) -> bool:
        register = PostgresRegister(options)
        ready.wait()
        state = replace(FIRST, run=f"run {number}")
        return isinstance(register.compare_and_set("job", None, state), str)

    with ThreadPoolExecutor(racers) as pool:
        assert sum(pool.map(race, range(racers))) == 1


def test_increments_of_many_are_all_there(options: PostgresOptions) -> None:
    PostgresRegister(options).compare_and_set("job", None, FIRST)

    def add(times: int) -> None:
        register = PostgresRegister(options)
        while times:
            stored = register.load("job")
            assert stored is not None
            raised = replace(stored.state, generation=stored.state.generation + 1)
            swapped = register.compare_and_set("job", stored.version, raised)
            times -= isinstance(swapped, str)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, [20] * 4))
    stored = PostgresRegister(options).load("job")
    assert stored is not None
    assert stored.state.generation == 81


def test_a_row_that_somebody_else_holds_is_waited_for_a_bounded_time(
    register: PostgresRegister, database: str
) -> None:
    version = register.compare_and_set("job", None, FIRST)
    assert isinstance(version, str)
    with psycopg.connect(database, application_name="somebody") as holder:
        holder.execute("select from abs.register for update")
        began = time.monotonic()
        with pytest.raises(ContentionError, match="lock timeout"):
            register.compare_and_set("job", version, SECOND)
        # The option locktimeout is 1 s; the bound leaves room for a machine under load.
        assert 0.9 < time.monotonic() - began < 60.0


OLDER, SOMEBODY = str(Tag(FIRST.register, 1)), "somebody"


@pytest.mark.parametrize(
    ("holders", "blocked"),
    [
        ([OLDER] * (SWAP_TRIES - 1), False),
        ([OLDER] * (SWAP_TRIES + 1), True),
        ([OLDER, SOMEBODY, OLDER], True),
        ([SOMEBODY, OLDER], True),
    ],
    ids=["older runs", "ever more of them", "then somebody else", "somebody else"],
)
def test_a_row_that_superseded_sessions_hold_is_tried_again_a_bounded_number_of_times(
    database: str, options: PostgresOptions, holders: list[str], blocked: bool
) -> None:
    """One after another takes the row as soon as the one before is ended."""
    quick = replace(options, locktimeout=0.2)
    register = PostgresRegister(quick)
    version = register.compare_and_set("job", None, FIRST)
    holding = list[psycopg.Connection[Any]]()

    def once() -> str:
        if len(holding) < len(holders):
            name, wait = holders[len(holding)], "-c lock_timeout=1s"
            holding.append(psycopg.connect(database, application_name=name, options=wait))
            holding[-1].execute("select from abs.register for update")
        with leased(quick.server, doing="writing") as connection:
            query = swapping(quick.state, str(version), SECOND)
            row = connection.execute(query).fetchone()
        assert row is not None
        return str(row[0])

    try:
        if blocked:
            raises(ContentionError, lambda: persistently(quick, SECOND, once))
            tries = (holders.index(SOMEBODY) + 1) if SOMEBODY in holders else SWAP_TRIES
            assert len(holding) == tries
            # Who blocks the last try is not ended for nothing.
            assert [_is_ended(each) for each in holding] == [True] * (tries - 1) + [False]
        else:
            persistently(quick, SECOND, once)
            assert all(map(_is_ended, holding))
        stored = register.load("job")
        assert stored is not None
        assert stored.state == (FIRST if blocked else SECOND)
    finally:
        for each in holding:
            each.close()


def _is_ended(session: psycopg.Connection[Any]) -> bool:
    try:
        session.execute("select 1")
    except psycopg.OperationalError:
        return True
    return False


def test_it_is_durable_where_the_server_is_not_by_default(
    register: PostgresRegister, options: PostgresOptions, postgres: PostgresService
) -> None:
    register.compare_and_set("job", None, FIRST)
    close_idle()
    with psycopg.connect(postgres.admin_url, autocommit=True) as admin:
        database = dict(options.address.parameters)["dbname"]
        admin.execute(f"alter database {database} set synchronous_commit = off")
    with leased(options.server) as connection:
        assert connection.execute("show synchronous_commit").fetchone() == ("on",)


@pytest.mark.parametrize("chosen", ["remote_apply", "local"])
def test_a_durability_that_was_chosen_is_left_alone(
    options: PostgresOptions, postgres: PostgresService, chosen: str
) -> None:
    with psycopg.connect(postgres.admin_url, autocommit=True) as admin:
        database = dict(options.address.parameters)["dbname"]
        admin.execute(f"alter database {database} set synchronous_commit = {chosen}")
    with leased(options.server) as connection:
        assert connection.execute("show synchronous_commit").fetchone() == (chosen,)


def test_jobs_are_listed_and_other_jobs_on_a_target_are_found(register: PostgresRegister) -> None:
    for name in ("b", "a", "batch@1", "batch@2"):
        register.compare_and_set(name, None, replace(FIRST, job=name))
    elsewhere = replace(FIRST, job="c", target="postgres:1/db/public.u")
    register.compare_and_set("c", None, elsewhere)
    assert [stored.state.job for stored in register.jobs()] == ["a", "b", "batch@1", "batch@2", "c"]
    assert register.others_on(FIRST.target, "a") == ["b", "batch"]
    assert register.others_on(FIRST.target, "batch@3") == ["a", "b"]
    assert register.others_on("postgres:1/db/public.v", "a") == []


def test_retire_forgets_a_job_but_none_with_an_open_decision(register: PostgresRegister) -> None:
    assert not register.retire("job")
    decision = Decision("lineage", 0, 1, (Committable(HANDLE, 1, "d"),))
    version = register.compare_and_set("job", None, replace(FIRST, open=(decision,)))
    with pytest.raises(ProtocolError, match="not finished"):
        register.retire("job")
    assert isinstance(version, str)
    register.compare_and_set("job", version, replace(FIRST, frontier=0))
    assert register.retire("job")
    assert register.load("job") is None


@pytest.mark.parametrize(
    ("damage", "job", "told"),
    [
        ("state = jsonb_set(state, '{version}', '99')", "job", "version 99"),
        ("job = 'renamed'", "renamed", "belongs to job 'job'"),
    ],
)
def test_a_state_of_a_newer_release_and_a_row_under_another_name_are_refused(
    register: PostgresRegister, database: str, damage: str, job: str, told: str
) -> None:
    register.compare_and_set("job", None, FIRST)
    with psycopg.connect(database) as db:
        db.execute(f"update abs.register set {damage}")
    with pytest.raises(CorruptionError, match=told):
        register.load(job)


def test_a_schema_that_somebody_else_made_is_enough(
    options: PostgresOptions, postgres: PostgresService
) -> None:
    parameters = dict(options.address.parameters)
    name, role = parameters["dbname"], parameters["user"]
    admin_url = postgres.admin_url.rpartition("/")[0]
    with psycopg.connect(f"{admin_url}/{name}", autocommit=True) as admin:
        admin.execute(f"alter database {name} owner to postgres")
        admin.execute(f"create schema abs authorization {role}")
    register = PostgresRegister(options)
    register.compare_and_set("job", None, FIRST)
    assert register.load("job") is not None


def test_a_role_that_may_not_create_the_schema_is_told_what_to_run(
    options: PostgresOptions, postgres: PostgresService
) -> None:
    name = dict(options.address.parameters)["dbname"]
    with psycopg.connect(postgres.admin_url, autocommit=True) as admin:
        admin.execute(f"alter database {name} owner to postgres")
    with pytest.raises(RefusedError) as caught:
        PostgresRegister(options).compare_and_set("job", None, FIRST)
    statements = caught.value.remedy.partition("schema: ")[2]
    assert statements.startswith("CREATE SCHEMA")


def test_a_register_that_changes_while_it_is_retired_stays(
    options: PostgresOptions, register: PostgresRegister, database: str
) -> None:
    version = register.compare_and_set("job", None, FIRST)
    assert not isinstance(version, Conflict)
    with LossyProxy(database) as proxy:
        proxy.before("delete from", lambda: register.compare_and_set("job", version, SECOND))
        late = PostgresRegister(replace(options, address=Address.parse(proxy.url)))
        with pytest.raises(ContentionError, match="changed in the meantime"):
            late.retire("job")
        assert not proxy.waits
    stored = register.load("job")
    assert stored is not None
    assert stored.state == SECOND


def test_a_path_that_the_databases_encoding_lacks_is_named(postgres: PostgresService) -> None:
    with psycopg.connect(postgres.admin_url, autocommit=True) as admin:
        admin.execute("drop database if exists of_ascii")
        admin.execute(
            "create database of_ascii encoding 'SQL_ASCII' template template0 "
            "locale_provider libc locale 'C'"
        )
        url = in_database(postgres.admin_url, "of_ascii")
        narrow = PostgresRegister(PostgresOptions.parse({"url": url, "dbtable": "t"}))
        with pytest.raises(RefusedError, match=r"encoding \(SQL_ASCII\).*/päth"):
            narrow.compare_and_set("job", None, replace(FIRST, checkpoint="/päth"))
        close_idle()
        admin.execute("drop database of_ascii")
