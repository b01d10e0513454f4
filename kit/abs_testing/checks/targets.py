"""A target that goes back while the register does not, or the other way: a start tells it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from abs_core.contracts import Sink, Task
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import (
    AbsError,
    ConfigError,
    HandleLostError,
    IdentityError,
    RegisterLostError,
    TargetWentBackError,
)
from abs_core.lookback import past_of
from abs_core.model import AND, Committable, HandleName, Outcome, Wrote
from abs_core.protocol import RunIdentity
from abs_core.several import CompositeCommitter
from abs_core.sinkmap import STRIDE, number_of
from abs_testing.behind import CommitterBehind
from abs_testing.case import JOB, Case, consent_in, raises, rows
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import QUICK
from abs_testing.fault_injection import Commit, Wire
from abs_testing.harness import GoingBack, Remaking, Row, batch_of
from abs_testing.rules import (
    going_back,
    going_back_by_handle,
    going_back_on_the_way,
    only,
    remaking,
    remaking_two_step,
)

FIRST, SECOND, THIRD, LAST = rows(0, 3), rows(10, 2), rows(20, 4), rows(30, 1)


@only(going_back)
def a_target_that_went_back_is_told_at_a_start(case: Case) -> None:
    run = case.run()
    run.epoch(0, FIRST)
    back = _saved(case)
    run.epoch(1, SECOND)
    run.epoch(2, THIRD[:2], THIRD[2:])
    case.run().begin(3)  # nothing is told before
    back()
    before = run.state()
    error = raises(TargetWentBackError, lambda: case.run().begin(3))
    assert "6 rows of the finished epoch(s) 1 to 2" in error.what, (
        f"what is gone is not in: {error}"
    )
    assert run.state() == before, "a start that was refused has changed the register"
    case.holds(FIRST, when="after a start on a target that went back")
    case.run(adopt=consent_in(error)).epoch(3, LAST)
    case.run().begin(4)  # it is consented to once
    compared = {record.epoch for record in run.state().recent if record.shown}
    assert compared == {0, 3}, f"epochs {compared} are still compared, 1 and 2 were consented to"
    case.holds(FIRST, LAST, when="after a target that went back, by consent")


@only(going_back)
def what_is_recorded_of_an_epoch_is_what_its_target_shows_afterwards(case: Case) -> None:
    run = case.run()
    run.epoch(0, FIRST)
    before = _saved(case)
    # Each epoch is committed by one run, and finished and recorded by the next.
    cut = Cut("compare_and_set", where=lambda state: state.frontier == 1)
    raises(Halted, lambda: case.run(cut=cut).epoch(1, SECOND))
    case.run().epoch(1, SECOND)
    after = _saved(case)
    before()
    raises(TargetWentBackError, lambda: case.run().begin(2))
    after()
    case.run().epoch(2, THIRD)
    case.holds(FIRST, SECOND, THIRD, when="after a target that went back, and came again")


@only(going_back_on_the_way)
def a_target_that_goes_back_while_the_run_goes_on_is_told_before_a_decision(case: Case) -> None:
    run = case.run()
    run.epoch(0, FIRST)
    back = _saved(case)
    run.epoch(1, SECOND)
    back()
    error = raises(TargetWentBackError, lambda: run.epoch(2, THIRD))
    assert run.state().last_decided == 1, "an epoch was decided on a target that went back"
    case.run(adopt=consent_in(error)).epoch(2, THIRD)
    case.run().epoch(3, LAST)
    case.holds(FIRST, THIRD, LAST, when="after a target that went back while a run went on")


@only(going_back)
def a_target_that_others_write_to_did_not_go_back(case: Case) -> None:
    run, other = case.run(), case.run("other")
    run.epoch(0, FIRST)
    other.epoch(0, SECOND)
    other.epoch(1, THIRD)
    case.run().epoch(1, LAST)
    when = "after two jobs on one target"
    case.is_clean(JOB, "other", when=when)
    case.holds(FIRST, SECOND, THIRD, LAST, when=when)


@only(going_back)
def a_register_that_went_back_with_its_checkpoint_is_told_by_the_target(case: Case) -> None:
    run = case.run()
    run.epoch(0, FIRST)
    older, target = run.state(), _saved(case)
    for _ in range(2):
        case.run().begin(1)  # runs that write nothing
    later = case.run()
    later.epoch(1, SECOND)
    later.epoch(2, THIRD)
    later.store.compare_and_set(JOB, later.stored().version, older)  # as from a backup
    error = raises(RegisterLostError, lambda: case.run().begin(1))
    assert later.state() == older, "a start that was refused has changed the register"
    target()
    case.run(adopt=consent_in(error)).epoch(1, LAST)
    case.run().epoch(2, THIRD)
    case.holds(FIRST, LAST, THIRD, when="after register, checkpoint and target were restored")


@only(going_back)
def of_two_sinks_in_one_target_that_went_back_the_one_that_lost_rows_is_told(case: Case) -> None:
    """Of one job, in one table; each commits by itself, and the next process records both."""
    _Pair(case).epoch(0, FIRST, SECOND)
    between = _Between(case)
    raises(Halted, lambda: _Pair(case, between).epoch(1, LAST, THIRD))
    later = _Pair(case).coordinator
    later.begin(2)
    later.roll_forward()
    between.back()
    error = raises(TargetWentBackError, lambda: _Pair(case).coordinator.begin(2))
    said = {text[0]: text for text in error.what.split(" (sink ")[1:]}
    assert "no longer has the 4 rows" in said["b"], f"sink b has lost 4 rows: {error.what}"
    # A topic shows where it ends, not whose records are there; then nothing is to be doubled.
    alone = said.keys() == {"b"} or "a part may be there" in said["a"]
    assert alone, f"sink b alone has lost its rows: {error.what}"
    case.holds(FIRST, SECOND, LAST, when="after a target went back between two sinks")


@only(going_back_by_handle)
def an_epoch_of_which_a_target_has_lost_a_part_is_told_apart(case: Case) -> None:
    """To write all of it again would double the other part."""
    case.run().epoch(0, FIRST)
    none = _saved(case)
    run = case.run(cut=Cut("commit", handles=1))
    raises(Halted, lambda: run.epoch(1, SECOND, THIRD))
    between, seen = _saved(case), list(case.harness.read())
    later = case.run()
    later.begin(2)
    later.coordinator.roll_forward()
    for back, rows_seen in ((between, seen), (none, FIRST)):
        back()
        [look] = later.committer.look_back(replace(past_of(later.state()), apart=True))
        partly = (1,) if len(rows_seen) > len(FIRST) else ()
        assert (look.gone, look.partly) == ((1,), partly), (
            f"of {len(rows_seen)} rows it tells {look}"
        )
    text = raises(TargetWentBackError, lambda: case.run().begin(2)).what
    assert "a part may" not in text, f"nothing of epoch 1 is there: {text}"


@only(remaking)
def rows_of_a_target_that_is_made_again_before_the_first_decision_are_not_lost(case: Case) -> None:
    run = case.run()
    shares = run.tasks(0, FIRST, SECOND)
    _remake(case)
    with suppress(AbsError):
        run.commit(0, shares)

    def goes_on() -> None:
        again = case.run()
        again.epoch(0, FIRST, SECOND)  # skipped, if it was decided
        again.epoch(1, LAST)

    _told_or_there(case, goes_on, IdentityError, "before a decision")


@only(remaking_two_step)
def a_target_that_is_made_again_between_a_decision_and_its_commit_is_told(case: Case) -> None:
    case.halted(Cut("commit"), FIRST, SECOND)
    _remake(case)
    _goes_on_told(case, "between a decision and its commit")


@only(remaking_two_step)
def a_target_that_is_made_again_between_a_commit_and_its_end_is_told(case: Case) -> None:
    case.halted(Cut("compare_and_set", where=lambda state: state.frontier == 0), FIRST, SECOND)
    _remake(case)
    _goes_on_told(case, "between a commit and the end of the epoch")


def _goes_on_told(case: Case, moment: str) -> None:
    errors = HandleLostError, IdentityError, TargetWentBackError
    _told_or_there(case, lambda: case.run().epoch(1, LAST), errors, moment)


def _told_or_there(
    case: Case,
    goes_on: Callable[[], None],
    errors: type[AbsError] | tuple[type[AbsError], ...],
    moment: str,
) -> None:
    """A later run says that rows of epoch 0 are gone, or they are there."""
    try:
        goes_on()
        case.run().begin(2)
    except errors:
        return
    case.holds(FIRST, SECOND, LAST, when=f"nothing tells of a target that was made again {moment}")


def _remake(case: Case) -> None:
    assert isinstance(case.harness, Remaking)
    case.harness.remake()


class _Between(Wire):
    """Keeps the target as it is before the second sink's commit, after which the process dies."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self._case = case
        self.back: Callable[[], None] = lambda: None

    def commit(
        self, committables: Sequence[Committable], commit: Commit, *, whole: bool = False
    ) -> Mapping[HandleName, Outcome]:
        self.back = _saved(self._case)
        super().commit(committables, commit, whole=whole)
        raise Halted("after the second sink's commit")


class _Pair:
    """A run of a job with two sinks, a and b, in the target of the case."""

    def __init__(self, case: Case, wire: Wire | None = None) -> None:
        self._sinks: tuple[Sink, ...] = case.sink(), case.sink()
        a, b = (sink.committer() for sink in self._sinks)
        pairs = [([0], a), ([1], b if wire is None else CommitterBehind(b, wire))]
        named = tuple(zip("ab", (sink.target_id for sink in self._sinks), strict=True))
        target = AND.join(identity for _, identity in named)
        self.coordinator = Coordinator(
            RunIdentity(JOB, "lineage", secrets.token_hex(4), target, sinks=named),
            case.run().store,
            CompositeCommitter(pairs, number_of, _gone),
            co_commit=False,
            patience=QUICK,
        )

    def epoch(self, epoch: int, *parts: Sequence[Row]) -> None:
        """One task for each sink, then the commit."""
        state, _ = self.coordinator.begin(epoch)
        shares = []
        for number, (sink, part) in enumerate(zip(self._sinks, parts, strict=True)):
            place, attempt = number * STRIDE, secrets.token_hex(6)
            writer = sink.writer(Task(state.register, JOB, state.generation, epoch, place, attempt))
            writer.write(batch_of(part))
            shares.append(Wrote(len(part), writer.pre_commit()))
        self.coordinator.commit(Report(epoch, shares, None))


def _gone(number: int, committable: Committable) -> ConfigError:
    return ConfigError(f"There is no sink {number}.", remedy="this is a defect of the check.")


def _saved(case: Case) -> Callable[[], None]:
    assert isinstance(case.harness, GoingBack)
    return case.harness.backup()
