"""Pure rules of birth certificates, which detect a lost or outdated register.

A register that is missing, replaced or reverted must not be mistaken for a new one: the engine's replay
would be written twice. The **certificate** is in the engine's checkpoint, which survives the loss of
the register. It is written before a run's first decision (earlier, nothing is committed) and read
before a task may start the run.

The gap rule of ``protocol.plan`` covers what a certificate of the last run cannot: a reverted register
has a frontier too low for the next epoch. A register that is reverted within its first run has no
frontier; therefore the certificate names the epoch that is about to be decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from abs_core import consent, protocol, sinkmap
from abs_core._verdicts import write_again
from abs_core.births._errors import lost_error as lost_error
from abs_core.births._errors import missing_target as missing_target
from abs_core.births._errors import not_certified, open_before, register_lost
from abs_core.births._errors import vanished_target as vanished_target
from abs_core.certificate import Certificate, Origin
from abs_core.errors import EpochGapError, IdentityError, ProtocolError
from abs_core.model import MAX_SUPERSEDED, JobState
from abs_core.protocol import Changed, Refused, RunIdentity, Verdict


def certify(state: JobState, place: str, deciding: int) -> Certificate:
    """The certificate for a run that is about to decide ``deciding``."""
    return Certificate(state.job, state.register, place, state.generation, state.frontier, deciding)


def start(
    state: JobState | None,
    who: RunIdentity,
    new_register: str,
    origin: Origin,
    epoch: int,
    place: str,
) -> Verdict:
    """``protocol.start`` that never mints a register for a job with a certificate.

    Args:
        epoch: the epoch that the run is about to write or skip.
        place: the register's expected location.
    """
    # To be a zombie is the reason to name, and no consent overrides a move.
    if state is not None and (who.run in state.superseded or state.moved_to is not None):
        return protocol.start(state, who, new_register, epoch)
    renamed = _renamed(state, who, origin.certificate)
    if renamed is not None:
        return renamed
    why = why_lost(state, who, origin, epoch)
    if why is None:
        return protocol.start(state, who, new_register, epoch)
    left_out = _left_out(state, who, origin, epoch)
    if who.adopt != consent.to_go_on_without(origin, who, epoch, left_out):
        return Refused(register_lost(why, who, origin, epoch, place, left_out))
    return _begun_again(state, who, new_register, origin)


def still_there(
    state: JobState, who: RunIdentity, origin: Origin, epoch: int, place: str
) -> ProtocolError | None:
    """``start`` for a run that has started: the error if its register has changed, else None."""
    verdict = start(state, who, state.register, origin, epoch, place)
    return verdict.error if isinstance(verdict, Refused) else None


def why_lost(state: JobState | None, who: RunIdentity, origin: Origin, epoch: int) -> str | None:
    """How the register differs from the certificate, as half a sentence; None if it does not."""
    certificate = origin.certificate
    if certificate is None:
        if state is None and not origin.readable and epoch > 0:
            return (
                "is not there, and the checkpoint, which would show whether it existed, cannot "
                "be read"
            )
        return None
    if state is None:
        return "is not there"
    if state.run == who.run and state.generation > certificate.generation:
        # This run has started on it, and the certificate is from before. If it is another register, a
        # person has consented to it, for the run's first epoch; the later ones need no consent.
        return None
    if state.register != certificate.register:
        return f"is another one ({state.register}, not {certificate.register})"
    if state.generation < certificate.generation:
        return (
            f"is older than it was (generation {state.generation}; {certificate.generation} "
            "had begun)"
        )
    if state.lineage != who.lineage or state.generation > certificate.generation:
        # Another lineage has taken it over by consent, and numbers its own epochs; or later runs have
        # decided nothing, else they would have written their own certificate.
        return None
    last = -1 if state.last_decided is None else state.last_decided
    if certificate.frontier is not None and last < certificate.frontier:
        return f"is older than it was (finished up to {_shown(last)}; {certificate.frontier} was)"
    if epoch > certificate.deciding and last < certificate.deciding:
        return f"is older than it was (decided up to {_shown(last)}; {certificate.deciding} was)"
    return None


def uncertified(
    state: JobState, who: RunIdentity, origin: Origin, epoch: int, place: str, why: str
) -> Refused | None:
    """Refuse a run's first decision if its certificate cannot be written and is needed.

    It is not needed where the gap rule would detect a later loss of the register, or nothing can have
    been decided. A certificate of an earlier run does not detect a register that is reverted to the
    beginning of this one.

    Args:
        origin: read before the run tried to write.
        why: the reason that it cannot be written, as a sentence.
    """
    certificate = origin.certificate
    if certificate is None:
        consented = who.adopt == consent.to_go_on_without(origin, who, epoch)
        safe = epoch == 0 or state.last_decided is not None or consented
    else:
        mine = certificate.generation >= state.generation
        safe = certificate.register == state.register and (mine or state.last_decided is not None)
    return None if safe else Refused(not_certified(who, origin, epoch, place, why))


def went_back(state: JobState | None, seen: JobState) -> str | None:
    """How the register is older than the state that this process has seen; None if it is not."""
    if state is None:
        return "is missing while the job is running"
    if state.register != seen.register:
        return f"was replaced in a running job ({state.register}, not {seen.register})"
    if state.generation < seen.generation:
        return (
            f"went back in a running job (from generation {seen.generation} to {state.generation})"
        )
    if state.generation > seen.generation:
        return None
    for step, now, then in (
        ("decided", state.last_decided, seen.last_decided),
        ("finished", state.frontier, seen.frontier),
    ):
        if then is not None and (now is None or now < then):
            return f"went back in a running job (epoch {then} was {step}, and is not)"
    return None


def missing_verdict(who: RunIdentity, place: str) -> Refused:
    """Refuse because the register is missing, although this run has started."""
    return Refused(lost_error(who.job, "is missing while the job is running", place))


def begun_elsewhere(others: Sequence[JobState], who: RunIdentity, epoch: int) -> Refused | None:
    """Refuse to mint a register if the job's checkpoint seems to have been deleted.

    Args:
        others: states of other jobs on the same target, which is not empty.
    """
    if who.checkpoint is None:
        return None
    before = sorted(
        (
            other
            for other in others
            if (other.target, other.checkpoint) == (who.target, who.checkpoint)
            and other.lineage != who.lineage
            and other.last_decided is not None
        ),
        key=lambda other: other.job,
    )
    if not before:
        return None
    named = ", ".join(other.job for other in before)
    undone = next((other for other in before if other.open), None)
    # No consent goes past an open decision: its rows may be in a target already (I2).
    if undone is not None:
        return Refused(open_before(undone, who))
    token = consent.to_begin_again(before, who, epoch)
    if who.adopt == token:
        return None
    return Refused(
        IdentityError(
            f"Another query with its checkpoint at this location ({who.checkpoint}) has written "
            f"to {who.target}: job {named}. Its checkpoint was deleted, so everything that the "
            "source still has would be written a second time.",
            job=who.job,
            epoch=epoch,
            remedy=f"restore the checkpoint; or, to start again from nothing, clean the target and "
            f"use `abs job reset {before[-1].job}`; or, if all that this query will read is new to "
            f"the target, set the option adopt={token}.",
        )
    )


@dataclass(frozen=True, slots=True)
class Failed:
    """The first failed epoch of a run, as recorded in the engine's checkpoint.

    Args:
        partly: it was already finished when another call failed to write more of its rows.
    """

    epoch: int
    partly: bool = False


def passed_over(
    state: JobState | None, who: RunIdentity, failed: Failed | None, epoch: int
) -> Refused | None:
    """Refuse to start if the engine has moved past an epoch that failed.

    After its first failure a run writes nothing, so later epochs may be missing too.

    Args:
        epoch: the run's first epoch.
    """
    if failed is None:
        return None
    last = None if state is None else state.last_decided
    first = failed.epoch if last is None or failed.partly else max(failed.epoch, last + 1)
    if epoch <= first:
        return None
    token = consent.to_pass_over(first, who, epoch)
    if who.adopt == token:
        return None
    if failed.partly:
        fate = "was written only in part: a second call, with other rows of the epoch, failed"
        remedy = "let errors leave the function, and write those rows yourself. Then"
    else:
        fate = "failed and was not written"
        remedy = (
            f"let errors leave the function. To have the epochs written: {write_again(first)}; or, "
            "to continue without them,"
        )
    error = EpochGapError(
        f"Epoch {first} {fate}, but the query has moved on to epoch {epoch}: the epochs "
        "between would be lost. This happens when the function that calls the sink catches "
        "its error.",
        job=who.job,
        epoch=epoch,
        remedy=f"{remedy} set the option adopt={token} for one start.",
    )
    error.left_out = first, epoch - 1
    return Refused(error)


def _renamed(
    state: JobState | None, who: RunIdentity, certificate: Certificate | None
) -> Refused | None:
    if certificate is None or certificate.job == who.job:
        return None
    if state is not None and state.register == certificate.register:
        return None  # renamed by `abs register rename`; the next certificate has the new name
    return Refused(
        IdentityError(
            f"This checkpoint belongs to job {certificate.job}. Under another name, its committed "
            "epochs would be written a second time.",
            job=who.job,
            remedy=f"set job={certificate.job} again; or, to rename the job, run `abs register "
            f"rename {certificate.job} {who.job}` first. Its register is at {certificate.place}.",
        )
    )


def _begun_again(
    state: JobState | None, who: RunIdentity, new_register: str, origin: Origin
) -> Verdict:
    """Start anew by consent, as if nothing was decided, under a generation never used before."""
    begun = 0 if origin.certificate is None else origin.certificate.generation
    if state is None:
        minted = protocol.start(None, who, new_register)
        assert isinstance(minted, Changed), "without a state there is nothing to refuse"
        return Changed(replace(minted.state, generation=begun + 1))
    if state.open:
        return Refused(open_before(state, who))
    mapped = sinkmap.assign(state, who.sinks) if who.sinks else state.sinks
    if isinstance(mapped, IdentityError):
        return Refused(mapped)
    return Changed(
        replace(
            state,
            generation=max(state.generation, begun) + 1,
            run=who.run,
            superseded=(*state.superseded, state.run)[-MAX_SUPERSEDED:],
            target=who.target,
            lineage=who.lineage,
            frontier=None,
            recent=(),
            abandoned=(),
            checkpoint=who.checkpoint,
            sinks=mapped,
        )
    )


def _left_out(state: JobState | None, who: RunIdentity, origin: Origin, epoch: int) -> int | None:
    """The first epoch before ``epoch`` that an older register does not have; None if none is known."""
    certificate = origin.certificate
    if state is None or certificate is None:
        return None
    if (state.register, state.lineage) != (certificate.register, who.lineage):
        return None
    first = 0 if state.last_decided is None else state.last_decided + 1
    return first if first < epoch else None


def _shown(epoch: int) -> str:
    return "nothing" if epoch < 0 else str(epoch)
