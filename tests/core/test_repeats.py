"""A request that ended something comes again in the middle of the next epoch: on the fakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import pytest

from abs_core.model import Committable, HandleName, JobState, Outcome
from abs_testing import Harness, Opener, Repeat, by_calls, check_repeats
from abs_testing.calls import ContractCalls
from abs_testing.fakes.sink import HandleCommitter
from abs_testing.fakes.writers import drop
from tests.kit.fake_harness import open_fake
from tests.planted import Bug, Plant, planted
from tests.sample import cut

FAKES: dict[str, Opener] = {
    "2pc": partial(open_fake, "2pc", "append"),
    "2pc, register elsewhere": partial(open_fake, "2pc", "append", own_register=False),
    "wal": partial(open_fake, "wal", "append"),
    "wal upsert": partial(open_fake, "wal", "upsert"),
    "idempotent": partial(open_fake, "idempotent", "upsert"),
}
SAMPLED = 30


@pytest.mark.parametrize("fake", FAKES)
def test_a_late_second_end_cuts_nothing(fake: str) -> None:
    def sampled(found: Sequence[Repeat]) -> list[Repeat]:
        return cut(found, SAMPLED, f"repeats {fake}")

    assert check_repeats(by_calls(FAKES[fake]), choose=sampled)


@pytest.mark.campaign
@pytest.mark.parametrize("fake", FAKES)
def test_no_late_second_end_cuts_anything(fake: str) -> None:
    print(fake, len(check_repeats(by_calls(FAKES[fake]))))


def commits_whatever_is_prepared(plant: Plant) -> None:
    """A second commit ends the transaction that is open under the name now, whichever was meant."""
    right = HandleCommitter.commit

    def commit(self: HandleCommitter, given: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        before = {seen.outcome for seen in self.inspect(given).values()}
        outcomes = right(self, given)
        if before == {Outcome.COMMITTED}:
            with self._target.transaction() as db:
                for (handle,) in db.execute("SELECT handle FROM prepared").fetchall():
                    staged = "INSERT INTO data SELECT id, value FROM staged WHERE handle = ?"
                    db.execute(staged, [handle])
                    drop(db, handle)
        return outcomes

    plant(HandleCommitter, "commit", commit)


def drops_whatever_is_prepared(plant: Plant) -> None:
    def forget(self: HandleCommitter, state: JobState) -> None:
        with self._target.transaction() as db:
            db.execute("DELETE FROM marker")
            for (handle,) in db.execute("SELECT handle FROM prepared").fetchall():
                drop(db, handle)

    plant(HandleCommitter, "forget", forget)


BUGS: dict[Bug, str] = {
    commits_whatever_is_prepared: r"commit #\d+ again before",
    drops_whatever_is_prepared: r"forget #\d+ again before",
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_check_repeats_finds_a_target_that(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abs_testing.case.PATIENCE", 0.05)
    with planted(bug, match=BUGS[bug]) as failed:
        check_repeats(by_calls(FAKES["2pc"]))
    print(str(failed.value)[:500])


def test_a_call_comes_again_before_the_one_that_is_named_whatever_else_is_called() -> None:
    calls = ContractCalls()
    calls.repeat("commit", 2, "abort", 2)
    did: list[str] = []
    names = ["commit", "abort", "abort", "commit", "load", "abort", "load", "load", "abort"]
    for number, name in enumerate([*names, "abort"]):
        calls.write(name, partial(did.append, f"{name} {number}"))
    assert did[7:] == ["load 7", "commit 3", "abort 8", "abort 9"]
    assert calls.repeated


class Forgetful:
    """Sees the calls of others, and brings none again."""

    fired = repeated = False

    def __init__(self, calls: ContractCalls) -> None:
        self._calls = calls
        self.arm, self.ends = calls.arm, calls.ends
        self.losses, self.release = calls.losses, calls.release

    @property
    def seen(self) -> Sequence[str]:
        return self._calls.seen

    def repeat(self, name: str, number: int, before: str, nth: int) -> None:
        self.arm(1, None)


@pytest.mark.parametrize("tried", [1, 30])
def test_calls_that_never_come_again_are_found(tried: int) -> None:
    @contextmanager
    def opened() -> Iterator[tuple[Harness, Forgetful]]:
        with by_calls(FAKES["2pc"])() as (harness, calls):
            yield harness, Forgetful(calls)

    with pytest.raises(AssertionError, match=f"{tried} of {tried} repeats were not met"):
        check_repeats(opened, choose=lambda found: found[:tried])
