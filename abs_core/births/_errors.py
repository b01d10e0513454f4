"""The errors with which the rules of birth certificates refuse."""

from __future__ import annotations

from abs_core import consent
from abs_core._verdicts import epochs, write_again
from abs_core.certificate import Origin
from abs_core.errors import IdentityError, RegisterLostError
from abs_core.model import JobState
from abs_core.protocol import RunIdentity

_CAUSES = (
    "It may have been deleted, expired, restored from an old backup, or lost in a failover; or what "
    "names its place has changed: an option, or the first of several sinks."
)


def lost_error(job: str, why: str, place: str) -> RegisterLostError:
    """The error for a lost register that no consent can override."""
    return RegisterLostError(
        f"The job's register {why}. It was looked for at {place}. {_CAUSES}",
        job=job,
        remedy="restore the register before you restart; it says what is committed.",
    )


def missing_target(state: JobState | None, sink: str = "") -> IdentityError | None:
    """The error for a target that is not there, although the job has committed to it.

    A new one would lack what the job has committed. None if the job has committed nothing to it.

    Args:
        sink: the name of one of several sinks.
    """
    last = None if state is None else state.last_decided
    if state is None or last is None:
        return None
    target = state.target
    if state.sinks:
        there = [entry for entry in state.sinks if entry.name == sink and entry.until is None]
        if not there or there[0].since > last:
            return None
        target = there[0].target
    return IdentityError(
        f"Job {state.job} has committed up to epoch {last} to {target}, but the target of its options "
        "is not there: was it dropped or renamed? A new one would lack these rows, so none is created.",
        job=state.job,
        remedy="give it its old name back, or restore it; if it has another name now, set that name. "
        f"To begin again from nothing: `abs job reset {state.job}`, and delete the checkpoint.",
    )


def vanished_target() -> IdentityError:
    """The error for a target that was there when the run began; see ``Sink.if_missing``."""
    return IdentityError(
        "The target is not there any more, though it was when the run began: was it dropped?",
        remedy="give it its old name back, or restore it; the next start says what would be missing.",
    )


def register_lost(
    why: str,
    who: RunIdentity,
    origin: Origin,
    epoch: int,
    place: str,
    left_out: int | None,
) -> RegisterLostError:
    certificate = origin.certificate
    before = (
        ""
        if certificate is None
        else f" When epoch {certificate.deciding} was about to be committed it was at "
        f"{certificate.place}."
    )
    token = consent.to_go_on_without(origin, who, epoch, left_out)
    restore = "restore the register (or set the option, or the order of the sinks, back)"
    if left_out is None:
        remedy = f"{restore}; or, {_after_checking(epoch)}, set the option adopt={token}."
        gone = ""
    else:
        span, number = epochs(left_out, epoch - 1), epoch - left_out
        gone = f" It does not have {span}: the query would go on with epoch {epoch}."
        remedy = (
            f"{restore}. If the target was restored with it, and lacks the rows of {span}: "
            f"{write_again(left_out)}. If the target has all these rows, or you give them up, set the "
            f"option adopt={token}: {span} ({number} in all) will never be written."
        )
    error = RegisterLostError(
        f"The job's register {why}. It was looked for at {place}.{before} {_CAUSES}{gone} Nothing was "
        "written: without the register, replayed epochs could be written twice.",
        job=who.job,
        epoch=epoch,
        remedy=remedy,
    )
    error.left_out = None if left_out is None else (left_out, epoch - 1)
    return error


def _after_checking(epoch: int) -> str:
    """What a person must know of the target before a query goes on with ``epoch``."""
    nothing = f"nothing from epoch {epoch} on"
    if epoch == 0:
        return f"after checking that the target contains {nothing}"
    earlier = "epoch 0" if epoch == 1 else f"the epochs before {epoch}"
    return (
        f"after checking that the target contains all rows of {earlier}, which will never be written "
        f"again, and {nothing}"
    )


def not_certified(
    who: RunIdentity, origin: Origin, epoch: int, place: str, why: str
) -> RegisterLostError:
    write = "let the driver's Python write into the checkpoint, and restart the query"
    if origin.certificate is None:
        cause = (
            f"The job's register at {place} is empty, but the query begins with epoch {epoch}. It "
            "is unknown whether the register was lost, and a birth certificate, which would show "
            "this from now on, cannot be written."
        )
        token = consent.to_go_on_without(origin, who, epoch)
        remedy = f"{write}; or, {_after_checking(epoch)}, set the option adopt={token}."
    else:
        cause = (
            "The birth certificate belongs to an earlier run, or to a register that was given up "
            "by consent, and this run's cannot be written. Without it, a register that is lost "
            "later could be taken for a new one."
        )
        remedy = f"{write}."
    return RegisterLostError(
        f"{cause} {why} Nothing of this epoch is committed.",
        job=who.job,
        epoch=epoch,
        remedy=remedy,
    )


def open_before(state: JobState, who: RunIdentity) -> IdentityError:
    return IdentityError(
        f"The register of job {state.job} holds {len(state.open)} decided epoch(s) that are not "
        "finished; until they are, the job cannot continue without it.",
        job=who.job,
        epoch=state.open[0].epoch,
        remedy=f"finish them: `abs in-doubt commit {state.job}`. Then start again.",
    )
