"""Results and arguments of the rules in ``protocol``, and the errors with which they refuse.

Import results and arguments from ``protocol``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from abs_core.errors import AbandonedError, FencedError, IdentityError, ProtocolError
from abs_core.model import NOWHERE, JobState, Recent
from abs_core.rowdigest import is_row_digest, read_row_digest


@dataclass(frozen=True, slots=True)
class Changed:
    """The rule yields this new state."""

    state: JobState


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The state already satisfies the rule."""

    state: JobState


@dataclass(frozen=True, slots=True)
class Refused:
    """The rule forbids the change; the state must stay as it is."""

    error: ProtocolError


Verdict = Changed | Unchanged | Refused


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """One run of a job, with its target and the lineage of its epoch numbers.

    Args:
        adopt: a consent token that a refusal named, see ``consent``.
        checkpoint: location of the engine's checkpoint, see ``JobState``.
        sinks: (name, target) of each sink of a multi-sink job; ``target`` then joins all of them.
    """

    job: str
    lineage: str
    run: str
    target: str
    adopt: str | None = None
    checkpoint: str | None = None
    sinks: tuple[tuple[str, str], ...] = ()


def epochs(first: int, last: int) -> str:
    """These epochs, in words."""
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"


def write_again(first: int) -> str:
    """How to have all epochs from ``first`` on written again, as part of a sentence."""
    return (
        f"stop the query, keep a copy of its checkpoint, delete from it all of commits/ from {first} "
        f"on and all of offsets/ above {first}, also their hidden files (.{first}.crc), and start it "
        "again (if a source is not read by offsets as Kafka is, or the query has state: restore a copy "
        "of the checkpoint of that time)"
    )


def fenced(state: JobState, who: str) -> FencedError:
    """Another run has taken over."""
    return FencedError(
        f"A newer run has taken over (generation {state.generation}); {who} must stop.",
        job=state.job,
        remedy="none, if the job was restarted; otherwise two drivers share one checkpoint or one "
        "job name: stop one of them (two batch writes with one token: run it again).",
    )


def abandoned(state: JobState, epoch: int) -> AbandonedError:
    """This run has abandoned the epoch."""
    return AbandonedError(
        f"Epoch {epoch} failed in this run and was given up.",
        job=state.job,
        epoch=epoch,
        remedy="restart the query; the new run writes the epoch again.",
    )


def other_identity(state: JobState, who: RunIdentity, token: str) -> IdentityError:
    """The register belongs to another lineage or target.

    Args:
        token: the consent token that allows the run to continue.
    """
    question = ""
    if state.lineage != who.lineage:
        done = "nothing" if state.last_decided is None else f"all up to epoch {state.last_decided}"
        question = (
            f"Was the checkpoint of job {state.job} deleted? This query's is another one or new, and "
            f"the job has committed {done}. "
        )
        restore, other = "restore the checkpoint that belongs to it", "set another `job` name, or "
        consent = (
            "if everything that this query will read is new to the target (it is written even if "
            "the job wrote it before)"
        )
    else:
        restore = (
            "write to the target that belongs to it; or, for another target, use another `job` name "
            "and a new checkpoint"
        )
        other = "set "
        done = "nothing" if state.last_decided is None else f"all up to epoch {state.last_decided}"
        consent = (
            f"if the target was moved or renamed with its rows ({done} counts as present there, "
            "and is not written again)"
        )
    differences = [
        f"its {label} is {theirs}, this run's is {mine}"
        for label, theirs, mine in (
            ("lineage (query id)", state.lineage, who.lineage),
            ("target", state.target, who.target),
        )
        if theirs != mine
    ]
    return IdentityError(
        f"{question}This register belongs to another query or another target: "
        f"{'; '.join(differences)}.",
        job=state.job,
        remedy=f"{restore}; or, {consent}, {other}the option adopt={token}.",
    )


def other_sinks(state: JobState, names: Sequence[str]) -> IdentityError:
    """The run began with a different set of sinks."""
    begun = [sink.name for sink in state.sinks if sink.until is None]
    return IdentityError(
        f"This run of the job began with the sinks {', '.join(begun)} and now continues with "
        f"{', '.join(names)}: the rows of one of the two calls would be lost.",
        job=state.job,
        remedy="pass all sinks of a batch in one call; or give the second call another job. To "
        "add or take out a sink, restart the query.",
    )


def open_elsewhere(state: JobState) -> IdentityError:
    """The job cannot change its target while decisions for the old target are open."""
    return IdentityError(
        f"The job cannot move to another target while {len(state.open)} decided epoch(s) are not "
        f"yet committed at {state.target}.",
        job=state.job,
        epoch=state.open[0].epoch,
        remedy="start it once more at the old target, so that they are committed, then adopt.",
    )


def moved_away(state: JobState) -> IdentityError:
    """The register was moved; no consent allows a run to use the remaining cell."""
    if state.moved_to == NOWHERE:
        return IdentityError(
            "The job is being reset or removed, by a command that has not finished.",
            job=state.job,
            remedy=f"run `abs job reset {state.job}` (or `remove`) again, to its end.",
        )
    return IdentityError(
        f"The job's register is no longer here: it was moved to {state.moved_to}.",
        job=state.job,
        remedy="point the job to the new location: with the option that names the register's "
        "place, with the argument register of an epoch over several sinks, or with the option "
        "job.",
    )


def difference(recorded: Recent, fingerprint: str | None, rows: int) -> str | None:
    """How the epoch differs from its record; None if it does not."""
    old_fingerprint, by_rows = recorded.fingerprint, is_row_digest(fingerprint)
    comparable = (
        fingerprint is not None
        and old_fingerprint is not None
        and by_rows == is_row_digest(old_fingerprint)
    )
    if comparable and not by_rows:
        return (
            None
            if fingerprint == old_fingerprint
            else "its input is not the input it was committed with"
        )
    if rows != recorded.rows:
        return f"it has {rows} rows now and had {recorded.rows} when it was committed"
    if fingerprint is None or old_fingerprint is None or not comparable:
        return None
    return read_row_digest(fingerprint).differs_from(read_row_digest(old_fingerprint))
