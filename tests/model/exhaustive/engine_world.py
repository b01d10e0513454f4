"""One state of the model of engines, and what is explored of them; see ``engines``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from abs_core import protocol
from abs_core.births import rules as births
from abs_core.births.rules import Failed
from abs_core.model import HandleName, JobState
from abs_core.protocol import Refused, RunIdentity, Verdict
from abs_spark.foreach.process import Known

JOB, REGISTER = "job", "0" * 16
OFF, CHECK, BEGIN, START, PLAN, WRITE, DRAIN, DECIDE, COMMIT, FINISH, RETURN = range(11)
FAIL, TELL, END, RAISED, NOTE = range(11, 16)
"""What is done next: by a call, by one that fails (from ``FAIL`` on), by the engine (``NOTE``)."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call for the job: which parts of the batch's rows it has, and for which sinks."""

    parts: tuple[int, ...] = (0,)
    sinks: tuple[str, ...] = ("a",)


Batch = tuple[Call, ...]
ONCE: Batch = (Call(),)


@dataclass(frozen=True, slots=True)
class Ways:
    """How a job goes; tests put a wrong way in place of a right one.

    Args:
        functions: of each run, the last one of all that follow: what it calls in each batch, in turns.
        keeps_errors: whether it may keep an error to itself.
        failures: how often a call fails by itself, at most.
        deaths: how often a process dies, at most.
        by_process: what a run has finished is known to the process, not to each of its functions.
        notes: whether a batch that failed is noted in the checkpoint.
        keeps_the_first: and stays noted where the next start fails, too.
        compares_rows: of an epoch that may be written in part only.
    """

    functions: tuple[tuple[Batch, ...], ...] = ((ONCE,),)
    epochs: int = 3
    runs: int = 4
    keeps_errors: bool = True
    failures: int = 1
    deaths: int = 1
    start: Callable[[JobState | None, RunIdentity, str], Verdict] = protocol.start
    passed_over: Callable[[JobState | None, RunIdentity, Failed | None, int], Refused | None] = (
        births.passed_over
    )
    keeps_the_first: bool = True
    by_process: bool = True
    notes: bool = True
    compares_rows: bool = True

    def calls(self, run: int, epoch: int) -> Batch:
        function = self.functions[min(run, len(self.functions) - 1)]
        return function[epoch % len(function)]

    @property
    def parts(self) -> frozenset[int]:
        """Of the rows of each batch."""
        return frozenset(p for f in self.functions for b in f for call in b for p in call.parts)

    @property
    def as_told(self) -> bool:
        """Whether each function calls once in a batch, and no sink is taken out."""
        same = all(a[0].sinks == b[0].sinks for f in self.functions for a, b in pairwise(f))
        kept = all({*a[0][0].sinks} <= {*b[0][0].sinks} for a, b in pairwise(self.functions))
        return same and kept and all(len(batch) == 1 for f in self.functions for batch in f)


@dataclass(frozen=True, slots=True, order=True)
class Rows:
    """What one handle holds."""

    sink: str
    epoch: int
    part: int
    handle: HandleName


@dataclass(frozen=True, slots=True)
class Job:
    """One state of the model.

    Args:
        noted: batches that the engine holds for written.
        failed: what the checkpoint's note says.
        known: what the process knows; one for each place in the batch where functions know it.
        checked: the places whose function has begun in this run.
        told: the epoch that a start was refused for, as the person has read it.
        consents: the present start goes with the token of that refusal.
        excused: (epoch, part) that a person knows to be lost: by consent, or as an error has said.
        why: what the failing call raises.
    """

    register: JobState | None = None
    prepared: frozenset[Rows] = frozenset()
    visible: frozenset[Rows] = frozenset()
    noted: int = 0
    failed: Failed | None = None
    run: int = -1
    at: int = OFF
    place: int = 0
    known: tuple[Known, ...] = ()
    checked: frozenset[int] = frozenset()
    told: tuple[int, int] | None = None
    consents: bool = False
    excused: frozenset[tuple[int, int]] = frozenset()
    named: tuple[Rows, ...] = ()
    why: str = ""
    failures: int = 0
    deaths: int = 0
    blamed: bool = False
