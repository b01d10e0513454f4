"""Checks that the target stays exact if a job's options change between runs.

A run uses one way (a protocol, a place for its state, ...) and ends at some moment of an epoch; the
next runs use another way, and then the first again. Each start either continues exactly, or fails
with a remedy; the job then continues by its former way. No row is ever duplicated, and in the end
none is missing and nothing is left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Protocol

from abs_core.certificate import MemoryCertificates
from abs_core.contracts import Sink
from abs_core.errors import AbsError, HandleLostError
from abs_core.model import JobState, Share
from abs_testing.case import Case, rows, written
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import Run
from abs_testing.harness import Harness, Row
from abs_testing.job import Choose, try_each

Epoch = tuple[Sequence[Row], ...]
EPOCHS: tuple[Epoch, ...] = (
    (rows(0, 3),),
    (rows(10, 3), rows(20, 2)),
    (rows(30, 3),),
    (rows(40, 2), rows(50, 1)),
)
CUT = 1
"""The epoch at which the first run ends or is suspended."""

STARTS = 3
"""How often a way is started before its refusal is final."""


class Changing(Harness, Protocol):
    """A harness that builds sinks with different options on one target."""

    new_sink: Callable[[], Sink]

    @property
    def ways(self) -> Mapping[str, Callable[[], Sink]]:
        """A sink factory for each way, by the way's name; picklable as ``new_sink`` is."""
        ...


ChangingOpener = Callable[[], AbstractContextManager[Changing]]


@dataclass(frozen=True, slots=True)
class Change:
    """A change from one way to another, at one moment of the first run."""

    first: str
    then: str
    moment: str

    def __str__(self) -> str:
        return f"{self.first} -> {self.then} -> {self.first}, {self.moment}"


@dataclass(frozen=True, slots=True)
class Changes:
    """The result of ``check_changes``.

    Args:
        refused: the changes that failed, with the error's text.
    """

    tried: tuple[Change, ...]
    refused: Mapping[Change, str]

    def __str__(self) -> str:
        return f"{len(self.tried)} changes tried, {len(self.refused)} of them refused"


def _decides(state: JobState) -> bool:
    return state.last_decided == CUT and bool(state.open)


def _finishes(state: JobState) -> bool:
    return state.frontier == CUT


_TWO_STEP = {
    "before its decision": Cut("compare_and_set", where=_decides),
    "decided": Cut("commit"),
    "with one handle committed": Cut("commit", handles=1),
    "with all handles committed": Cut("compare_and_set", where=_finishes),
}
_CUTS = {
    **_TWO_STEP,
    "before it is co-committed": Cut("co_commit"),
    "finished, and not yet forgotten": Cut("forget"),
}
BETWEEN, WRITTEN, ALIVE = "between two epochs", "pre-committed", "pre-committed, and it lives on"
MOMENTS = (BETWEEN, WRITTEN, ALIVE, *_CUTS)


def check_changes(
    opener: ChangingOpener,
    pairs: Iterable[tuple[str, str]] | None = None,
    *,
    choose: Choose[Change] = tuple,
    finds: bool = True,
    at_once: int = 1,
) -> Changes:
    """Change a job's way and back, at every moment of an epoch, each on a target of its own.

    Args:
        pairs: ways to change from and to; default: every pair.
        choose: selects the changes to try; default: all.
        finds: whether each way finds the others' handles in doubt; if not, they stay until the job
            changes back.
        at_once: number of jobs that run at the same time, each in a thread.

    Raises:
        AssertionError: a row is missing or duplicated, something is left behind, or an error has no
            remedy; one line for each change.
    """
    chosen = tuple(choose(changes(opener, pairs)))
    errors = try_each(chosen, partial(_try, opener, finds), at_once, "changes")
    return Changes(chosen, {c: error for c, error in zip(chosen, errors, strict=True) if error})


def changes(opener: ChangingOpener, pairs: Iterable[tuple[str, str]] | None = None) -> list[Change]:
    """Every change, at each moment that a run by the first way passes."""
    with opener() as harness, Case(harness) as case:
        passed = {name: tuple(_moments(case, new_sink)) for name, new_sink in harness.ways.items()}
    between = permutations(passed, 2) if pairs is None else pairs
    return [Change(first, then, m) for first, then in between for m in passed[first]]


def _moments(case: Case, new_sink: Callable[[], Sink]) -> Iterator[str]:
    case.harness.new_sink = new_sink  # type: ignore[misc]
    co_commits = case.co_commits
    for moment in MOMENTS:
        if moment not in (_TWO_STEP if co_commits else ("before it is co-committed",)):
            yield moment


def _try(opener: ChangingOpener, finds: bool, change: Change) -> str:
    """The text of a refusal, if there was one."""
    with opener() as harness, closing(Case(harness)) as case:
        return _Changed(case, harness, change).live(finds=finds)


class _Changed:
    """One job; the engine's checkpoint goes with it from way to way."""

    def __init__(self, case: Case, harness: Changing, change: Change) -> None:
        self._case = case
        self._harness = harness
        self._change = change
        self._checkpoint = MemoryCertificates()
        self._registers: set[str] = set()
        self._done = 0

    def live(self, *, finds: bool) -> str:
        """Run the job; the text of the second way's refusal, if any."""
        first, then = self._change.first, self._change.then
        alive = self._until_the_moment()
        refusal = self._go_on(then, 3)
        if alive is not None:
            old, shares = alive
            with suppress(AbsError):  # usually fenced, unless the other way was refused
                old.commit(CUT, shares)
            self._case.nothing_beyond(written(EPOCHS), when="after the run before went on")
        elif finds and not refusal:
            self._is_clean(f"after epoch 2 by {then}")
        if refusal:
            back = self._go_on(first, 3)
            assert not back, f"back by the first way: {back}"
        again = self._go_on(first, len(EPOCHS))
        if again:
            last = self._go_on(then, len(EPOCHS))
            assert not last, f"by neither way: {again}; {last}"
        run = self._run(then if again else first)
        run.begin(len(EPOCHS))  # a start sweeps
        self._case.holds(written(EPOCHS), when="at the end")
        self._is_clean("at the end")
        return refusal

    def _until_the_moment(self) -> tuple[Run, list[Share]] | None:
        """The first run, until it is cut; if it lives on, the run and what it pre-committed."""
        first, moment = self._change.first, self._change.moment
        self._epoch(self._run(first), 0)
        if moment in (WRITTEN, ALIVE):
            run = self._run(first)
            shares = run.tasks(CUT, *EPOCHS[CUT])
            return (run, shares) if moment == ALIVE else None
        run = self._run(first, _CUTS.get(moment))
        try:
            self._epoch(run, CUT)
        except Halted:
            return None
        assert moment == BETWEEN, f"no run of this way gets there: {moment}"
        return None

    def _go_on(self, way: str, until: int) -> str:
        """Start by this way and write the remaining epochs; return the refusal's text, if any."""
        for start in range(STARTS):
            try:
                run = self._run(way)
                while self._done < until:
                    self._epoch(run, self._done)
            except AbsError as error:
                self._is_told(error)
                if start + 1 == STARTS or not error.retryable:
                    return f"{type(error).__name__}: {error}"
            else:
                self._case.holds(written(EPOCHS[:until]), when=f"after epoch {until - 1} by {way}")
                return ""
        return ""

    def _epoch(self, run: Run, epoch: int) -> None:
        run.commit(epoch, run.tasks(epoch, *EPOCHS[epoch]))
        self._registers.add(run.state().register)
        self._done = max(self._done, epoch + 1)

    def _run(self, way: str, cut: Cut | None = None) -> Run:
        self._harness.new_sink = self._harness.ways[way]
        return self._case.run(certificates=self._checkpoint, cut=cut)

    def _is_clean(self, when: str) -> None:
        """Check that nothing is left; with a second register, a person has to clean up instead."""
        if len(self._registers) == 1:
            self._case.is_clean(when=when)

    def _is_told(self, error: AbsError) -> None:
        assert error.remedy, f"the error does not say what to do: {error}"
        # Its remedy is to write the rows again, but they are there.
        assert not isinstance(error, HandleLostError), f"nothing was lost: {error}"
        self._case.nothing_beyond(written(EPOCHS), when=f"after {error}")
