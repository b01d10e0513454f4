"""Keyed state in PostgreSQL, in its three ways, keeps the contract of every state backend."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from abs_clients.postgres.address import Address, Server
from abs_core.errors import (
    AbsError,
    FencedError,
    HandleLostError,
    ProtocolError,
    UnavailableError,
)
from abs_embedded.state.contracts import NewBackend, SnapshotStore
from abs_embedded.state.external import Changes
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.stores.postgres import opaque as state_opaque
from abs_embedded.stores.postgres.mvcc import MvccState, mvcc_backends
from abs_embedded.stores.postgres.opaque import opaque_backends
from abs_embedded.stores.postgres.tables import StateTables
from abs_embedded.stores.postgres.two_phase import TwoPhaseState, two_phase_backends
from abs_embedded.testing import check_failures as failures
from abs_embedded.testing import check_state as rules
from abs_embedded.testing.check_state import RULES, Rule, check_state
from abs_embedded.testing.state_case import KEYS, Model, StateCase, StateSubject
from tests import sample
from tests.planted import Bug, Plant, planted

pytestmark = pytest.mark.services
WAYS: dict[str, Callable[[Server], NewBackend]] = {
    "mvcc": mvcc_backends,
    "2pc": two_phase_backends,
    "opaque": opaque_backends,
}


def no_damage(store: SnapshotStore, key: str, change: object) -> None:
    raise AssertionError(f"there is no blob {key}")


@pytest.fixture
def server(shared_database: str) -> Server:
    return Server(Address.parse(shared_database), locktimeout=1.0)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def subject(way: str, server: Server, tmp_path: Path) -> StateSubject:
    def new_store() -> LocalSnapshotStore:
        return LocalSnapshotStore(tmp_path / secrets.token_hex(4))

    return StateSubject(WAYS[way](server), new_store, no_damage, in_flight=1)


@pytest.fixture
def case(subject: StateSubject) -> StateCase:
    return StateCase(subject, f"job{secrets.token_hex(6)}")


@sample.cases(1, of="way")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_state_in_postgres_keeps(rule: Rule, subject: StateSubject) -> None:
    check_state(subject, [rule])


def test_a_second_checkpoint_in_flight_is_refused(case: StateCase) -> None:
    case.fill("v")
    case.snapshot()
    with pytest.raises(ProtocolError, match="is in flight"):
        case.backends[0].snapshot(2)


@pytest.mark.parametrize("way", ["2pc", "opaque"], indirect=True)
def test_a_zombie_is_fenced_before_it_writes(case: StateCase) -> None:
    case.fill("v")
    saved, old = case.complete(), case.backends
    key = next(key for key in KEYS if case.backend(key) is old[0])
    case.start(1)
    case.model = saved
    case.table(old[0]).put_many([key], [b"of the zombie"])
    with pytest.raises(FencedError):
        old[0].snapshot(9).persist()
    case.holds("after the zombie")


def test_going_back_further_than_it_can_is_refused(case: StateCase, way: str) -> None:
    case.fill("1")
    case.complete()
    for text in ("2", "3"):
        case.fill(text)
        case.complete()
    for number in (3, 2):
        case.store.retire(number)
    with pytest.raises(HandleLostError):
        case.start(2)


@pytest.mark.parametrize("way", ["mvcc"], indirect=True)
def test_versions_go_back_by_one_checkpoint_and_a_rollback_touches_no_row(
    case: StateCase, shared_database: str
) -> None:
    case.fill("1")
    first = case.complete()
    case.fill("2")
    case.complete()
    case.store.retire(2)
    written = "select count(*), max(xmin::text::bigint) from abs.keyed_mvcc"
    with psycopg.connect(shared_database, autocommit=True) as connection:
        before = connection.execute(written).fetchone()
        case.start(3, old=False)
        assert connection.execute(written).fetchone() == before
    case.model = first
    case.holds("back at the first checkpoint, at another parallelism")


@pytest.mark.parametrize("way", ["mvcc"], indirect=True)
def test_versions_do_not_pile_up(case: StateCase, shared_database: str) -> None:
    scopes = {backend.state.scope for backend in case.backends}  # type: ignore[attr-defined]
    for step in range(6):
        case.fill(str(step))
        case.complete()
    with psycopg.connect(shared_database) as connection:
        count = "select count(*) from abs.keyed_mvcc where scope = any(%s)"
        (rows,) = connection.execute(count, (list(scopes),)).fetchone() or (0,)
    assert rows == 2 * (len(case.model.flat) + len(case.model.deep)), "more than two versions"


@pytest.mark.parametrize("way", ["2pc"], indirect=True)
def test_no_prepared_transaction_is_left(case: StateCase, shared_database: str) -> None:
    case.fill("1")
    case.complete()
    case.fill("2")
    case.persist(case.snapshot())
    case.crash(expect=Model())
    case.table(case.backends[0]).get_many(KEYS[:1])
    assert _prepared(case, shared_database) == 0


@pytest.mark.parametrize("way", ["2pc"], indirect=True)
def test_what_is_prepared_although_the_reply_was_lost_is_taken_back(
    case: StateCase, shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = TwoPhaseState.writing

    @contextmanager
    def losing(self: TwoPhaseState) -> Iterator[Connection[Any]]:
        with writing(self) as connection:
            yield connection
        raise UnavailableError("planted: the reply to PREPARE is lost")

    case.fill("1")
    with monkeypatch.context() as patch:
        patch.setattr(TwoPhaseState, "writing", losing)
        number = case.snapshot()
        with pytest.raises(UnavailableError):
            case.persist(number)
    case.abort(number)
    assert _prepared(case, shared_database) == 0
    case.fill("2")
    case.complete()  # would wait for the locks
    case.holds("written again after a lost reply")


def _prepared(case: StateCase, url: str) -> int:
    scope = case.backends[0].state.scope  # type: ignore[attr-defined]
    with psycopg.connect(url) as connection:
        left = "select count(*) from pg_prepared_xacts where gid like %s"
        (count,) = connection.execute(left, (f"abs-state:{scope}:%",)).fetchone() or (0,)
    return int(count)


def all_generations_count(plant: Plant) -> None:
    limits = dict.fromkeys(range(100), 1 << 60)
    seen = {"generations": list(limits), "limits": list(limits.values())}
    plant(MvccState, "visible", lambda _: seen)


def older_runs_stay_prepared(plant: Plant) -> None:
    plant(TwoPhaseState, "_settle", lambda *_: None)


def what_is_prepared_is_committed(plant: Plant) -> None:
    persist = TwoPhaseState.persist

    def early(
        self: TwoPhaseState, checkpoint: int, changes: Changes
    ) -> tuple[tuple[str, str], ...]:
        extra = persist(self, checkpoint, changes)
        self.commit(checkpoint)
        return extra

    plant(TwoPhaseState, "persist", early)


def the_value_before_is_the_last_written(plant: Plant) -> None:
    careless = state_opaque._PUT.replace("t.checkpoint <= %(committed)s", "true")
    plant(state_opaque, "_PUT", careless)


def nothing_is_fenced(plant: Plant) -> None:
    plant(StateTables, "_check", lambda *_: None)


def registers_are_not_told_apart(plant: Plant) -> None:
    plant(StateTables, "_check_owner", lambda *_: None)


CAUGHT: dict[Bug, tuple[str, Rule]] = {
    all_generations_count: (
        "mvcc",
        failures.a_crash_before_the_record_goes_back_to_the_one_before,
    ),
    older_runs_stay_prepared: ("2pc", failures.a_crash_after_the_record_keeps_the_checkpoint),
    what_is_prepared_is_committed: (
        "2pc",
        failures.a_crash_before_the_record_goes_back_to_the_one_before,
    ),
    the_value_before_is_the_last_written: (
        "opaque",
        failures.a_crash_after_failed_checkpoints_goes_back_behind_them,
    ),
    registers_are_not_told_apart: (
        "mvcc",
        rules.state_under_another_register_is_refused_or_not_seen,
    ),
    nothing_is_fenced: ("opaque", failures.an_older_run_that_goes_on_changes_nothing),
}


@pytest.mark.parametrize(
    ("bug", "way"), [(bug, way) for bug, (way, _) in CAUGHT.items()], indirect=["way"]
)
def test_the_check_catches(bug: Bug, subject: StateSubject) -> None:
    with planted(bug, by=(AssertionError, AbsError)):
        check_state(subject, [CAUGHT[bug][1]])
