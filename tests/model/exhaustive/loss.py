"""A job whose register may be lost: how it goes, and one state of the model of it, see ``losses``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from abs_core.births import rules as births
from abs_core.births import targets
from abs_core.certificate import Certificate, Origin
from abs_core.lookback import LookedBack, Past
from abs_core.model import Decision, HandleName, JobState, Shown
from abs_core.protocol import Refused, RunIdentity, Verdict

OFF, BEGIN, LOAD, CERTIFY, DECIDE, COMMIT, FINISH, AFTERWARDS, TELL, NOTE = range(10)
"""What a run does next. ``BEGIN`` is its tasks' step, the others are the commit process's."""

StartRule = Callable[[JobState | None, RunIdentity, str, Origin, int, str], Verdict]
Uncertified = Callable[[JobState, RunIdentity, Origin, int, str, str], Refused | None]
Look = Callable[[Past, Collection[HandleName]], Sequence[LookedBack]]
Marks = Callable[[Decision, Collection[HandleName]], Sequence[Shown]]
Consented = Callable[[JobState | None, Verdict, Sequence[LookedBack]], Verdict]


def _no_marks(past: Past, visible: Collection[HandleName]) -> Sequence[LookedBack]:
    return ()


@dataclass(frozen=True, slots=True)
class Ways:
    """How a job goes; tests put a wrong way in place of a right one.

    Args:
        start: the rule by which a run takes the job over.
        certify: makes the certificate.
        first: whether that is written before the run's first decision, not after it.
        uncertified: whether a run may decide although its certificate could not be written.
        gaps: whether the engine may leave epochs out.
        tells: whether each epoch is told to the certificate, where the engine may do so.
        stops: whether a run ends where that fails.
        epochs: in the source.
        runs: starts, at most.
        losses: how often the register is lost, at most.
        full: whether no certificate can ever be written.
        refusals: how often one that is there cannot be written anew, at most.
        first_too: whether also the first one may be refused so often.
        unseen: whether all decisions of a job that was never certified may be lost, see ``losses``.
        tries_again: whether one that could not be written is tried again at the next epoch.
        unheard: how many writes take effect without an answer, at most.
        consents: how often the operator consents to go on without the register, at most.
        several: whether the job has two named sinks, not one without a name.
        restores: whether the target goes back with the register, as rows and register of one database.
        backs: how often a target goes back by itself, at most, see ``going_back``.
        looks: how a target is compared with its marks.
        on_the_way: whether that is done before each decision, too, not only at a start.
        vanish: whether what is prepared goes back with the target.
        marks: what is noted of a finished epoch.
        consented: the rule by which a start goes on without what is gone.
    """

    start: StartRule = births.start
    certify: Callable[[JobState, str, int], Certificate] = births.certify
    first: bool = True
    uncertified: Uncertified = births.uncertified
    gaps: bool = False
    tells: bool = True
    stops: bool = True
    epochs: int = 3
    runs: int = 3
    losses: int = 1
    full: bool = False
    refusals: int = 0
    first_too: bool = False
    unseen: bool = False
    tries_again: bool = True
    unheard: int = 0
    consents: int = 0
    several: bool = False
    restores: bool = False
    backs: int = 0
    looks: Look = _no_marks
    on_the_way: bool = True
    vanish: bool = False
    marks: Marks | None = None
    consented: Consented = targets.consented


class Loss(NamedTuple):
    """One state of the model; a tuple, since most of an exploration is to copy and to hash them.

    Args:
        register: what the store holds now.
        held: what it has held before, oldest first.
        top: the highest epoch that was ever decided.
        below: the one that the register held as the last one before.
        begun: the highest epoch that a task has begun: it is not left out when it comes again.
        noted: epochs that the engine's checkpoint holds for done.
        visible: handles whose rows readers see.
        run: number of the present run, or of the last one.
        seen: what this run's commit process knows of the register.
        origin: what its planner has read.
        certified: whether this run has written the certificate.
        tried: whether that has failed in this epoch.
        adopt: the token in the job's options.
        restored: whether the target has lost rows, and nobody has said yet what becomes of them.
        held_rows: what was visible before, where targets go back by themselves.
        ever: all that was ever visible, there.
        given_up: epochs of which an error has told, and that the operator goes on without.
        stale: what the open decision names went back with its target.
    """

    register: JobState | None = None
    held: tuple[JobState, ...] = ()
    top: int = -1
    below: int = -1
    begun: int = -1
    certificate: Certificate | None = None
    noted: int = 0
    visible: frozenset[HandleName] = frozenset()
    run: int = -1
    at: int = OFF
    seen: JobState | None = None
    origin: Origin = Origin()
    certified: bool = False
    tried: bool = False
    losses: int = 0
    refusals: int = 0
    unheard: int = 0
    consents: int = 0
    adopt: str = ""
    lost: bool = False
    restored: bool = False
    backs: int = 0
    held_rows: tuple[frozenset[HandleName], ...] = ()
    ever: frozenset[HandleName] = frozenset()
    given_up: frozenset[int] = frozenset()
    stale: bool = False

    def puts(self, state: JobState) -> Loss:
        """The register holds this state now."""
        held = self.held if self.register is None else (*self.held, self.register)
        decided = last(state)
        before = -1 if self.register is None else last(self.register)
        top, below = (decided, before) if decided > self.top else (self.top, self.below)
        return self._replace(register=state, seen=state, held=held, top=top, below=below)


def last(state: JobState) -> int:
    return -1 if state.last_decided is None else state.last_decided
