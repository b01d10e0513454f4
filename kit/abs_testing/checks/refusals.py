"""A target that refuses after pre-commit, for good: nothing is decided, or it ends by consent."""

from __future__ import annotations

from contextlib import suppress

from abs_core.errors import AbsError, RefusedError
from abs_testing.case import LEFT, MORE, RIGHT, Case, raises, rows
from abs_testing.cuts import Cut
from abs_testing.fault_injection import Fault, Wire
from abs_testing.harness import Refusing
from abs_testing.rules import hiding, hiding_two_step, only, refusing

PADDING = "v" * 40
"""Makes values that are longer than what a harness lets its target take (``Refusing``)."""

LONG = rows(0, 3, PADDING)


class Refusals(Wire):
    """The target refuses the calls of these names; all others take place."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self._names = names

    def _next(self, name: str) -> Fault:
        if name in self._names:
            raise RefusedError(f"The target refuses {name} (on purpose).", remedy="let it take it.")
        return super()._next(name)


@only(hiding)
def a_refusal_between_pre_commit_and_decision_decides_nothing(case: Case) -> None:
    for call in ("compose", "inspect", "co_commit"):
        run = case.run(wire=Refusals(call))
        shares = run.tasks(0, LEFT, RIGHT)
        try:
            run.commit(0, shares)
        except AbsError:
            assert not run.state().open, f"{call} was refused, and the epoch is decided"
            case.hides_all(f"after {call} was refused")
        else:
            break  # the sink has no such call
    case.replayed(LEFT, RIGHT, when="after the target accepts again")


@only(refusing)
def what_a_target_no_longer_takes_is_not_decided(case: Case) -> None:
    harness = case.harness
    assert isinstance(harness, Refusing)
    run = case.run()
    shares = run.tasks(0, LONG, rows(10, 3, PADDING))
    with harness.refusing(), suppress(AbsError):
        run.commit(0, shares)  # it may succeed: the target has taken the rows before
    state = run.state()
    assert not state.open, "it is decided, which other targets obey, and this one refuses"
    if state.frontier is None:
        case.hides_all("after the target refused")
    case.replayed(LONG, rows(10, 3, PADDING), when="after the target takes the rows again")


@only(hiding_two_step)
def a_decided_handle_that_its_target_refuses_ends_by_consent(case: Case) -> None:
    late = case.halted(Cut("commit"), LEFT, RIGHT)
    decision = late.state().open[0]
    run = case.run(wire=Refusals("commit"))
    drained = run.tasks(0, LEFT, RIGHT)
    error = raises(RefusedError, lambda: run.commit(0, drained))
    assert "is decided" in error.what, f"the error does not say that the epoch is decided: {error}"
    assert "accept-loss" in error.remedy, f"the error names no way on: {error}"
    assert run.state().open, "a decision must stay until it is kept, or given up by consent"

    lost = [loss.committable for loss in run.coordinator.lost(0)]
    assert set(lost) == set(decision.committables), "each refused handle must be shown"
    run.coordinator.accept_loss(0, lost)
    assert not run.state().open, "the accepted loss must be recorded"
    case.hides_all("after the loss was accepted")
    # A coordinator that was stopped before its commit goes on, and the target takes all of it now.
    case.run(run=late.who.run).committer.commit(decision.committables)
    case.hides_all("after a late commit of what was given up: the loss was not final")
    case.run().epoch(1, MORE)
    case.finished(MORE, when="after the next epoch")


@only(hiding_two_step)
def a_loss_that_cannot_be_made_final_is_not_recorded(case: Case) -> None:
    case.halted(Cut("commit"), LEFT, RIGHT)
    run = case.run(wire=Refusals("commit", "forsake"))
    run.begin(0)
    lost = [loss.committable for loss in run.coordinator.lost(0)]
    raises(RefusedError, lambda: run.coordinator.accept_loss(0, lost))
    assert run.state().open, "a loss was recorded that is not final"
    case.replayed(LEFT, RIGHT, when="after the target takes the rows again")
