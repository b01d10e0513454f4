"""Every call of a job, lost in every way, by its position: on the fakes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest

from abs_core.contracts import Conflict, Version
from abs_core.coordinator import Coordinator
from abs_core.errors import FencedError
from abs_core.fakes.committers import HandleCommitter, TransactionCommitter
from abs_core.fakes.register import FakeRegister
from abs_core.fakes.writers import UpsertWriter, drop
from abs_core.model import Committable, JobState
from abs_core.testing import Calls, Harness, Opener, Position, by_calls, check_positions
from abs_core.testing.calls import ContractCalls, Loss
from tests import daily
from tests.kit.fake_harness import open_fake

FAKES: dict[str, Opener] = {
    "2pc-append": partial(open_fake, "2pc", "append"),
    "2pc-append-foreign-register": partial(open_fake, "2pc", "append", own_register=False),
    "wal-append": partial(open_fake, "wal", "append"),
    "wal-append-foreign-register": partial(open_fake, "wal", "append", own_register=False),
    "wal-upsert": partial(open_fake, "wal", "upsert"),
    "idempotent-upsert": partial(open_fake, "idempotent", "upsert"),
}


@pytest.mark.parametrize("fake", daily.members(FAKES, 2, "lost calls on fakes"))
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

    def arm(self, position: int, loss: Loss | None) -> None:
        self._calls.arm(position, None)


@pytest.mark.parametrize("tried", [1, 4, 60])
def test_faults_that_never_fire_are_found(tried: int) -> None:
    @contextmanager
    def opened() -> Iterator[tuple[Harness, Calls]]:
        with by_calls(FAKES["2pc-append"])() as (harness, calls):
            yield harness, Deaf(calls)

    with pytest.raises(AssertionError, match=f"{tried} of {tried} positions were not met"):
        check_positions(opened, choose=lambda found: found[:tried])


def undoes_what_a_doubled_request_did(patch: pytest.MonkeyPatch) -> None:
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

    patch.setattr(TransactionCommitter, "co_commit", co_commit)


def takes_a_conflict_for_a_newer_run(patch: pytest.MonkeyPatch) -> None:
    """The register's put came twice; the second answer stops the job."""
    right = FakeRegister.compare_and_set

    def compare_and_set(
        self: FakeRegister, job: str, expected: Version | None, state: JobState
    ) -> Version | Conflict:
        answer = right(self, job, expected, state)
        if isinstance(answer, Conflict):
            raise FencedError("A newer run has taken over.")
        return answer

    patch.setattr(FakeRegister, "compare_and_set", compare_and_set)


def sweeps_before_it_abandons(patch: pytest.MonkeyPatch) -> None:
    """What a failed commit left is aborted, while its decision may still be on its way."""

    def abort(self: Coordinator, epoch: int) -> None:
        doubts = self._committer.in_doubt(self._who.job)
        self._committer.abort([d.handle for d in doubts if d.handle.epoch == epoch])

    patch.setattr(Coordinator, "abort", abort)


def leaves_no_proof(patch: pytest.MonkeyPatch) -> None:
    """Whether a handle whose commit was not answered is committed cannot be told."""
    right = HandleCommitter._apply

    def apply(self: HandleCommitter, db: sqlite3.Connection, committable: Committable) -> None:
        right(self, db, committable)
        db.execute(
            "CREATE TRIGGER IF NOT EXISTS gone AFTER INSERT ON marker BEGIN DELETE FROM marker; END"
        )

    patch.setattr(HandleCommitter, "_apply", apply)


def never_asks_the_register(patch: pytest.MonkeyPatch) -> None:
    """A task that hung overwrites what a later epoch has written."""
    patch.setattr(UpsertWriter, "_check", lambda self, db: None)


Bug = Callable[[pytest.MonkeyPatch], None]
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


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_check_positions_finds_a_job_that(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abs_core.testing.case.PATIENCE", 0.05)
    bug(monkeypatch)
    fake, found = BUGS[bug]
    with pytest.raises(AssertionError, match=found) as failed:
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
