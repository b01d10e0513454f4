"""Every call of a job, lost in every way, by its position: on the fakes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import repeat

import pytest

from abs_core.contracts import Conflict, Version
from abs_core.coordinator import Coordinator
from abs_core.errors import FencedError, UnavailableError
from abs_core.model import Committable, JobState
from abs_testing import (
    Calls,
    Harness,
    Opener,
    Position,
    PositionOpener,
    by_calls,
    check_positions,
)
from abs_testing.calls import ContractCalls, Loss
from abs_testing.fakes.sink import TransactionCommitter
from abs_testing.fakes.target import FakeRegister
from abs_testing.fakes.writers import UpsertWriter, drop
from tests import sample
from tests.core.planted_sink_bugs import leaves_no_proof
from tests.kit.asking import Asking
from tests.kit.fake_harness import open_fake
from tests.planted import Bug, Plant, planted

FAKES: dict[str, Opener] = {
    "2pc-append": partial(open_fake, "2pc", "append"),
    "2pc-append-foreign-register": partial(open_fake, "2pc", "append", own_register=False),
    "wal-append": partial(open_fake, "wal", "append"),
    "wal-append-foreign-register": partial(open_fake, "wal", "append", own_register=False),
    "wal-upsert": partial(open_fake, "wal", "upsert"),
    "idempotent-upsert": partial(open_fake, "idempotent", "upsert"),
}


@pytest.mark.parametrize("fake", sample.members(FAKES, 2, "lost calls on fakes"))
def test_no_call_of_a_job_can_be_lost_so_that_a_row_is(fake: str) -> None:
    tried = check_positions(by_calls(FAKES[fake]))
    print(fake, tried, sep=": ")
    assert not tried.missed
    assert not tried.waited


class Deaf:
    """Sees the calls of others, and loses none."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.fired = False
        self.losses, self.release = calls.losses, calls.release

    @property
    def seen(self) -> Sequence[str]:
        return self._calls.seen

    def arm(self, number: int, loss: Loss | None, name: str = "") -> None:
        self._calls.arm(number, None, name)


@pytest.mark.parametrize("tried", [1, 4, 60])
def test_faults_that_never_fire_are_found(tried: int) -> None:
    @contextmanager
    def opened() -> Iterator[tuple[Harness, Calls]]:
        with by_calls(FAKES["2pc-append"])() as (harness, calls):
            yield harness, Deaf(calls)

    with pytest.raises(AssertionError, match=f"(?s){tried} of {tried} positions.*met no fault"):
        check_positions(opened, choose=lambda found: found[:tried])


def asking(*asks: int) -> PositionOpener:
    """A job that asks so often in one run after another; from the last number on, always so often."""
    left = list(asks)
    return by_calls(
        FAKES["2pc-append"], lambda: Asking(repeat(left.pop(0) if len(left) > 1 else left[0]))
    )


def test_a_call_is_found_by_its_number_among_those_of_its_name() -> None:
    calls = ContractCalls()
    calls.arm(2, Loss.REQUEST, "ask")
    for name in ("load", "ask", "load"):
        calls.read(name, lambda: None)
    assert not calls.fired
    with pytest.raises(UnavailableError):
        calls.read("ask", lambda: None)
    assert calls.fired


def test_each_call_is_met_by_its_name_however_often_another_one_is_made_before() -> None:
    def dropped(found: Sequence[Position]) -> list[Position]:
        return [p for p in found if p.call != "ask" and p.loss is Loss.REQUEST]

    tried = check_positions(asking(9, 9, 0, 5, 1, 7, 2), choose=dropped)
    assert {position.number for position in tried.tried if position.call == "commit"} > {1, 2, 3}
    assert not tried.missed
    assert tried.varied == {}, "each run met its position: none was a run without a fault"


def asks(found: Sequence[Position]) -> list[Position]:
    return [p for p in found if p.call == "ask" and p.loss is Loss.REQUEST]


def test_positions_of_a_name_that_varies_are_told_apart() -> None:
    tried = check_positions(asking(2, 2, 1), choose=asks, varies=["ask"])
    assert [position.name for position in tried.missed] == ["ask #2"]
    assert tried.varied == {"ask": (1, 2)}
    assert "1 of calls that not each run makes (ask 1 to 2), 1 of them not met" in str(tried)


def test_a_call_that_not_each_run_makes_is_waited_for() -> None:
    def second(found: Sequence[Position]) -> list[Position]:
        return asks(found)[1:]

    tried = check_positions(asking(2, 2, 1, 1, 2), choose=second, varies=["ask"])
    assert not tried.missed
    assert tried.varied == {"ask": (1, 2)}


def test_a_name_has_as_many_positions_as_calls_in_the_middle_rehearsal() -> None:
    tried = check_positions(asking(1, 9, 3, 3), choose=asks, rehearsals=3, varies=["ask"])
    assert [position.number for position in tried.tried] == [1, 2, 3]
    assert not tried.missed
    assert tried.varied == {"ask": (1, 9)}


def test_a_call_that_does_not_depend_on_time_may_not_be_missing() -> None:
    with pytest.raises(AssertionError, match=r"do not depend on time .*: \['ask #2 dropped'\]"):
        check_positions(asking(2, 2, 1), choose=asks, varies=[])


def test_too_many_calls_that_not_each_run_makes_are_no_proof() -> None:
    with pytest.raises(AssertionError, match="3 of 4 positions were not met"):
        check_positions(asking(4, 4, 1), choose=asks, varies=["ask"])


def undoes_what_a_doubled_request_did(plant: Plant) -> None:
    """A conflict is taken for another's win, although the request came twice and won itself."""
    right = TransactionCommitter.co_commit

    def co_commit(
        self: TransactionCommitter, given: Sequence[Committable], expected: str, state: JobState
    ) -> Version | Conflict:
        answer = right(self, given, expected, state)
        if isinstance(answer, Conflict):
            with self._target.transaction() as db:
                for one in given:
                    db.execute("DELETE FROM data WHERE id / 10 * 10 >= 30")
                    drop(db, str(one.handle))
        return answer

    plant(TransactionCommitter, "co_commit", co_commit)


def takes_a_conflict_for_a_newer_run(plant: Plant) -> None:
    """The register's put came twice; the second answer stops the job."""
    right = FakeRegister.compare_and_set

    def compare_and_set(
        self: FakeRegister,
        job: str,
        expected: Version | None,
        state: JobState,
        deadline: float | None = None,
    ) -> Version | Conflict:
        answer = right(self, job, expected, state, deadline)
        if isinstance(answer, Conflict):
            raise FencedError("A newer run has taken over.")
        return answer

    plant(FakeRegister, "compare_and_set", compare_and_set)


def sweeps_before_it_abandons(plant: Plant) -> None:
    """What a failed commit left is aborted, while its decision may still be on its way."""

    def abort(self: Coordinator, epoch: int) -> None:
        doubts = self._committer.in_doubt(self._who.job)
        self._committer.abort([d.handle for d in doubts if d.handle.epoch == epoch])

    plant(Coordinator, "abort", abort)


def never_asks_the_register(plant: Plant) -> None:
    """A task that hung overwrites what a later epoch has written."""
    plant(UpsertWriter, "_check", lambda self, db: None)


BUGS: dict[Bug, tuple[str, str]] = {
    undoes_what_a_doubled_request_did: ("wal-append", "co_commit #3 doubled: .* missing"),
    takes_a_conflict_for_a_newer_run: ("2pc-append", "compare_and_set #1 doubled: FencedError"),
    sweeps_before_it_abandons: (
        "2pc-append",
        "compare_and_set #2 delayed until the engine starts again: HandleLostError",
    ),
    leaves_no_proof: ("2pc-append", "commit #2 whose reply is dropped: HandleLostError"),
    never_asks_the_register: (
        "idempotent-upsert",
        "pre_commit #1 delayed beyond the end of the job: .* must not",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_check_positions_finds_a_job_that(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abs_testing.case.PATIENCE", 0.05)
    fake, found = BUGS[bug]
    with planted(bug, match=found) as failed:
        check_positions(by_calls(FAKES[fake]))
    print(failed.value)


def test_only_what_is_chosen_is_tried() -> None:
    def third_commits(found: Sequence[Position]) -> list[Position]:
        return [position for position in found if position.name == "co_commit #3"]

    tried = check_positions(by_calls(FAKES["wal-append"]), choose=third_commits)
    assert [position.loss for position in tried.tried if not position.late] == list(Loss)
    assert len(tried.tried) == len(Loss) + 1, "what is delayed is tried early and late"


def test_a_target_that_no_call_reaches_is_no_proof() -> None:
    @contextmanager
    def past_the_calls() -> Iterator[tuple[Harness, Calls]]:
        with FAKES["2pc-append"]() as harness:
            yield harness, ContractCalls()

    with pytest.raises(AssertionError, match="no call of the job"):
        check_positions(past_the_calls)
