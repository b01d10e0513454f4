"""Renaming a job, moving its register, beginning again: nothing is lost or doubled, wherever cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from abs_cli import moving
from abs_cli.moving import move, rename, reset
from abs_core import consent
from abs_core.births import rules as births
from abs_core.certificate import MemoryCertificates, Origin
from abs_core.contracts import Conflict, Version
from abs_core.coordinator import Coordinator
from abs_core.errors import (
    ConfigError,
    ContentionError,
    FencedError,
    IdentityError,
    RegisterLostError,
)
from abs_core.model import NOWHERE, JobState, job_key
from abs_core.registers import MemoryRegister
from abs_testing.behind import CommitterBehind
from abs_testing.case import JOB, Case, raises, rows
from abs_testing.cuts import Cut, Halted
from abs_testing.fault_injection import Fault, Wire
from tests.kit.fake_harness import open_fake
from tests.planted import planted

ROWS, MORE = rows(0, 3), rows(10, 3)
NEW = "new"


class Brittle(MemoryRegister):
    """A register whose process dies before its nth change from now, if that is set.

    Args:
        beside: another register of the same process; changes of both count.
    """

    def __init__(self, beside: Brittle | None = None) -> None:
        super().__init__()
        self._first = beside or self
        self.left = -1

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        self._step()
        return super().compare_and_set(job, expected, state, deadline)

    def retire(self, job: str) -> bool:
        self._step()
        return super().retire(job)

    def _step(self) -> None:
        self._first.left -= 1
        if self._first.left == -1:
            raise Halted("cut off")


class Raced(MemoryRegister):
    """Before its next change of a job, somebody else changes it, if that is set."""

    def __init__(self) -> None:
        super().__init__()
        self.first: Callable[[], object] | None = None

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        first, self.first = self.first, None
        if first is not None:
            first()
        return super().compare_and_set(job, expected, state, deadline)


@pytest.fixture
def case() -> Iterator[Case]:
    with open_fake("2pc", "append", own_register=False) as harness, Case(harness) as case:
        yield case


@pytest.mark.parametrize("steps", range(-1, 6))
def test_a_renamed_job_goes_on_where_it_was_whenever_the_renaming_is_cut_off(
    case: Case, steps: int
) -> None:
    register, checkpoint = Brittle(), MemoryCertificates()
    case.run(store=register, certificates=checkpoint).epoch(0, ROWS)
    halted = case.run(store=register, certificates=checkpoint, cut=Cut("commit"))
    shares = halted.tasks(1, MORE)
    raises(Halted, lambda: halted.commit(1, shares))  # decided, and not committed
    committer = case.sink().committer()
    register.left = steps
    try:
        rename(register, committer, JOB, NEW)
    except Halted:
        rename(register, committer, JOB, NEW)
    else:
        assert steps in (-1, 5), "the act has five changes"
    register.left = -1
    case.finished(ROWS, MORE, when="after renaming")
    assert register.load(JOB) is None
    raises(RegisterLostError, lambda: case.run(store=register, certificates=checkpoint).begin(2))
    raises(RegisterLostError, lambda: halted.commit(1, shares))
    renamed = case.run(NEW, store=register, certificates=checkpoint)
    renamed.epoch(1, MORE)  # the engine had not noted it
    renamed.epoch(2, rows(20, 1))
    case.finished(ROWS, MORE, rows(20, 1), when="after the renamed job went on")
    assert checkpoint.certificate is not None
    assert checkpoint.certificate.job == NEW


def test_a_job_that_is_half_renamed_cannot_be_started_under_its_old_name(case: Case) -> None:
    register = Brittle()
    run = case.run(store=register)
    run.epoch(0, ROWS)
    register.left = 2  # its generation is raised, and it is marked
    raises(Halted, lambda: rename(register, case.sink().committer(), JOB, NEW))
    raises(IdentityError, lambda: case.run(store=register).begin(1))
    raises(FencedError, lambda: run.begin(1))
    raises(ConfigError, lambda: rename(register, case.sink().committer(), JOB, "another"))


def test_another_job_is_not_written_over(case: Case) -> None:
    register = Brittle()
    case.run(store=register).epoch(0, ROWS)
    case.run(NEW, store=register).epoch(0, MORE)
    before = register.load(JOB), register.load(NEW)
    raises(ConfigError, lambda: rename(register, case.sink().committer(), JOB, NEW))
    raises(ConfigError, lambda: rename(register, case.sink().committer(), "nobody", "else"))
    assert (register.load(JOB), register.load(NEW)) == before


@pytest.mark.parametrize("steps", range(-1, 6))
def test_a_job_whose_register_was_moved_goes_on_there_whenever_the_move_is_cut_off(
    case: Case, steps: int
) -> None:
    here, checkpoint = Brittle(), MemoryCertificates()
    there = Brittle(here)
    case.run(store=here, certificates=checkpoint).epoch(0, ROWS)
    halted = case.run(store=here, certificates=checkpoint, cut=Cut("commit"))
    shares = halted.tasks(1, MORE)
    raises(Halted, lambda: halted.commit(1, shares))  # decided, and not committed
    committer = case.sink().committer()
    here.left = steps
    try:
        move(here, committer, JOB, there)
    except Halted:
        assert (there.load(JOB) is None) == (steps < 4), "the old place is marked first"
        move(here, committer, JOB, there)
    else:
        assert steps in (-1, 5), "the act has five changes"
    here.left = -1
    case.finished(ROWS, MORE, when="after the move")
    raises(IdentityError, lambda: case.run(store=here, certificates=checkpoint).begin(2))
    raises(FencedError, lambda: halted.commit(1, shares))
    moved = case.run(store=there, certificates=checkpoint)
    moved.epoch(1, MORE)  # the engine had not noted it
    moved.epoch(2, rows(20, 1))
    case.finished(ROWS, MORE, rows(20, 1), when="after the job went on in the other place")
    assert move(here, committer, JOB, there) == moved.state(), "done twice it changes nothing"


def test_what_a_move_leaves_is_taken_for_live_by_no_consent(case: Case) -> None:
    here, there = Brittle(), Brittle()
    case.run(store=here).epoch(0, ROWS)
    move(here, case.sink().committer(), JOB, there)
    left = here.load(JOB)
    assert left is not None
    assert left.state.moved_to == there.place(JOB)
    assert left.state.open == ()
    who = case.run(store=here).who
    token = consent.to_adopt(left.state, who, 1)
    refused = raises(IdentityError, lambda: case.run(store=here, adopt=token).begin(1))
    assert there.place(JOB) in str(refused)
    lost = replace(left.state, register="f" * 16)
    certificate = births.certify(lost, "elsewhere", 0)
    token = consent.to_go_on_without(Origin(certificate), who, 1)
    again = case.run(store=here, certificates=MemoryCertificates(certificate), adopt=token)
    raises(IdentityError, lambda: again.begin(1))
    assert here.load(JOB) == left
    raises(ConfigError, lambda: move(here, case.sink().committer(), JOB, Brittle()))


def test_a_register_is_moved_back_by_the_same_act(case: Case) -> None:
    here, there = Brittle(), Brittle()
    case.run(store=here).epoch(0, ROWS)
    committer = case.sink().committer()
    move(here, committer, JOB, there)
    case.run(store=there).epoch(1, MORE)
    move(there, committer, JOB, here)
    raises(IdentityError, lambda: case.run(store=there).begin(2))
    case.run(store=here).epoch(2, rows(20, 1))
    case.finished(ROWS, MORE, rows(20, 1), when="after the register was moved there and back")


def test_a_register_is_not_moved_where_another_job_is(case: Case) -> None:
    here, there = Brittle(), Brittle()
    case.run(store=here).epoch(0, ROWS)
    case.run(store=there).epoch(0, MORE)
    before = here.load(JOB), there.load(JOB)
    raises(ConfigError, lambda: move(here, case.sink().committer(), JOB, there))
    raises(ConfigError, lambda: move(here, case.sink().committer(), "nobody", there))
    assert (here.load(JOB), there.load(JOB)) == before


@pytest.mark.parametrize("steps", range(-1, 4))
def test_a_job_that_is_reset_has_finished_what_it_decided_and_begins_from_nothing(
    case: Case, steps: int
) -> None:
    register = Brittle()
    halted = case.run(store=register, cut=Cut("commit"))
    raises(Halted, lambda: halted.epoch(0, ROWS))
    case.run(store=register, lineage="lineage").tasks(1, MORE)  # undecided
    register.left = steps
    try:
        assert reset(register, case.sink().committer(), JOB).frontier == 0
    except Halted:
        reset(register, case.sink().committer(), JOB)
    register.left = -1
    case.finished(ROWS, when="after the reset")
    assert register.load(JOB) is None
    again = case.run(store=register, lineage="another")
    again.epoch(0, ROWS)
    case.finished(ROWS, ROWS, when="after it began again, on purpose")
    assert replace(again.state(), register="").generation == 1


def test_a_job_that_runs_is_not_moved(case: Case) -> None:
    here, there = Raced(), Raced()
    run = case.run(store=here)
    run.epoch(0, ROWS)
    moving.take_over(here, case.sink().committer(), run.state())
    taken = run.state()
    here.first = partial(moving.take_over, here, case.sink().committer(), taken)
    error = raises(ContentionError, lambda: moving._swap(here, taken, replace(taken, run="mine")))
    assert "the job is running" in error.what
    assert run.state().run not in ("mine", taken.run)
    assert there.load(JOB) is None


def test_of_two_that_move_or_rename_a_job_at_once_one_is_refused_and_nothing_is_lost(
    case: Case,
) -> None:
    here, there = MemoryRegister(), Raced()
    case.run(store=here).epoch(0, ROWS)
    there.first = lambda: move(here, case.sink().committer(), JOB, there)
    raises(ContentionError, lambda: move(here, case.sink().committer(), JOB, there))
    case.run(store=there).epoch(1, MORE)
    again = Raced()
    move(there, case.sink().committer(), JOB, again)
    state = case.run(store=again).begin(2)[0]
    renamed = replace(state, job=NEW)

    def before(change: Callable[[], object]) -> Callable[[], None]:
        return lambda: setattr(again, "first", change)

    # The third change is that of the new name: it is taken after the old one was given up.
    again.first = before(before(lambda: again.compare_and_set(NEW, None, renamed)))
    error = raises(ContentionError, lambda: rename(again, case.sink().committer(), JOB, NEW))
    assert "at the same time" in error.what
    case.finished(ROWS, MORE, when="after two moved a job at once")


def test_a_job_that_is_live_in_two_places_is_not_moved(case: Case) -> None:
    here, there = MemoryRegister(), MemoryRegister()
    case.run(store=here).epoch(0, ROWS)
    stored = here.load(JOB)
    assert stored is not None
    there.compare_and_set(JOB, None, stored.state)
    error = raises(ConfigError, lambda: move(here, case.sink().committer(), JOB, there))
    assert "one of them is a copy" in error.what
    assert here.load(JOB) == stored


def test_no_run_starts_while_its_job_is_reset(case: Case) -> None:
    """Its decisions would be deleted."""
    register = Raced()
    case.run(store=register).epoch(0, ROWS)
    committer = case.sink().committer()

    def refused(last: JobState) -> None:
        error = raises(IdentityError, lambda: case.run(store=register).begin(1))
        assert "is being reset or removed" in error.what
        error_of_move = raises(ConfigError, lambda: move(register, committer, JOB, Raced()))
        assert "run that command again" in error_of_move.remedy
        raise Halted("a person ends the command")

    raises(Halted, lambda: reset(register, committer, JOB, refused))
    raises(Halted, lambda: reset(register, committer, JOB, refused))
    seen: list[str] = []
    reset(register, committer, JOB, lambda last: seen.append(last.lineage))
    assert seen == ["lineage"], "what is forgotten is of the job's own lineage"
    assert register.load(JOB) is None


def test_a_name_is_not_taken_for_the_mark_of_a_reset(case: Case) -> None:
    """Else the error of an interrupted rename would name a command that deletes the register."""
    register, name = Brittle(), job_key(NOWHERE)
    case.run(store=register).epoch(0, ROWS)
    committer = case.sink().committer()
    register.left = 2
    raises(Halted, lambda: rename(register, committer, JOB, name))
    error = raises(IdentityError, lambda: case.run(store=register).begin(1))
    assert "it was moved to" in error.what
    raises(IdentityError, lambda: reset(register, committer, JOB))
    register.left = -1
    assert rename(register, committer, JOB, name).job == name


def test_a_job_that_is_started_while_it_is_reset_goes_on(case: Case) -> None:
    register = Raced()
    case.run(store=register).epoch(0, ROWS)

    def started() -> None:
        register.first = lambda: case.run(store=register).epoch(1, MORE)

    register.first = started  # before the reset's second change
    raises(ContentionError, lambda: reset(register, case.sink().committer(), JOB))
    case.run(store=register).begin(2)
    case.finished(ROWS, MORE, when="after a reset beside a run")


def test_a_job_gets_an_old_name_back_where_a_move_has_left_its_note(case: Case) -> None:
    here, there = MemoryRegister(), MemoryRegister()
    committer = case.sink().committer()
    case.run(store=here).epoch(0, ROWS)
    move(here, committer, JOB, there)
    rename(there, committer, JOB, NEW)
    move(there, committer, NEW, here)
    rename(here, committer, NEW, JOB)
    case.run(store=here).epoch(1, MORE)
    case.finished(ROWS, MORE, when="after all of it")


def overtaken(case: Case) -> None:
    """Another person's command is killed behind its mark, while the first one's commits."""
    register, checkpoint = Brittle(), MemoryCertificates()
    halted = case.run(store=register, certificates=checkpoint, cut=Cut("commit"))
    raises(Halted, lambda: halted.epoch(0, ROWS))
    committer = case.sink().committer()

    def other() -> None:
        register.left = 3
        raises(Halted, lambda: rename(register, committer, JOB, NEW))
        register.left = -1

    wire = Wire(other)
    wire.planned.extend([Fault.NONE, Fault.OVERTAKEN])  # first it looks back
    behind = CommitterBehind(committer, wire)
    raises(FencedError, lambda: rename(register, behind, JOB, NEW))
    rename(register, committer, JOB, NEW)
    case.run(NEW, store=register, certificates=checkpoint).epoch(1, MORE)
    case.finished(ROWS, MORE, when="after two renamed a job at once")


def test_a_command_that_was_overtaken_goes_no_further(case: Case) -> None:
    overtaken(case)


def test_a_command_that_goes_on_with_another_ones_mark_is_found(case: Case) -> None:
    def take_over(self: Coordinator, seen: JobState) -> JobState:
        self._start(Origin(births.certify(seen, "", 0)), 0)
        return self._forward.finish_open(self._cell.mine(self._who))

    with planted((Coordinator, "take_over", take_over)):
        overtaken(case)
