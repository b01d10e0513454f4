"""One epoch over several sinks: one committer that routes by the sink number in each handle's name.

``SinkGroup`` is the contract of sinks of one system that share a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from abs_core.aborting import attempt_all, raise_all
from abs_core.contracts import Committer, Task
from abs_core.crash import CrashPoint, is_armed, reached
from abs_core.errors import AbsError
from abs_core.lookback import LookedBack, Past
from abs_core.model import (
    Committable,
    HandleName,
    InDoubt,
    Inspection,
    JobState,
    Outcome,
    Shown,
)
from abs_core.parallel import CallRunner, answers, in_turn


class CompositeCommitter(Committer):
    """A ``Committer`` over those of several sinks.

    Undecided handles are aborted by every sink that sees them, as the sink that prepared them may be
    gone or have another target now. A handle that none sees stays.

    Args:
        committers: each with the numbers of its sinks; sinks that share transactions have one.
        number_of: the sink number of a handle.
        gone: the error for a handle whose sink is not among them.
        run_calls: how they are called: ``parallel.in_turn`` or ``parallel.side_by_side``.
    """

    def __init__(
        self,
        committers: Iterable[tuple[Collection[int], Committer]],
        number_of: Callable[[HandleName], int],
        gone: Callable[[int, Committable], AbsError],
        *,
        run_calls: CallRunner = in_turn,
    ) -> None:
        ordered = sorted(committers, key=lambda pair: min(pair[0]))
        self._committers = [committer for _, committer in ordered]
        self._place = {n: place for place, (numbers, _) in enumerate(ordered) for n in numbers}
        self._number_of = number_of
        self._gone = gone
        self._run_calls = run_calls
        self.composes = any(committer.composes for committer in self._committers)

    def inspect(self, committables: Sequence[Committable]) -> dict[HandleName, Inspection]:
        """See ``Committer``.

        Raises:
            Exception: the first error, after all sinks were called; its notes hold the others.
        """
        routed = self._routed(committables)
        results = self.run_calls([partial(committer.inspect, share) for committer, share in routed])
        return {
            handle: inspection for share in answers(results) for handle, inspection in share.items()
        }

    def compose(self, committables: Sequence[Committable]) -> Sequence[Committable]:
        """See ``Committer``.

        Raises:
            Exception: as ``inspect``.
        """
        routed = self._routed(committables)
        made = self.run_calls([partial(committer.compose, share) for committer, share in routed])
        return [committable for share in answers(made) for committable in share]

    def commit(self, committables: Sequence[Committable]) -> dict[HandleName, Outcome]:
        """See ``Committer``. Commits in all systems that answer, even if others do not."""
        routed = self._routed(committables)

        def commit(committer: Committer, share: list[Committable]) -> Mapping[HandleName, Outcome]:
            if share is not routed[0][1]:
                reached(CrashPoint.BETWEEN_COMMITS)
            return committer.commit(share)

        # The crash point lies between two commits only if they run one after the other.
        run_calls = in_turn if is_armed(CrashPoint.BETWEEN_COMMITS) else self.run_calls
        results = run_calls([partial(commit, committer, share) for committer, share in routed])
        raise_all(outcome for outcome in results if isinstance(outcome, Exception))
        return {handle: outcome for share in answers(results) for handle, outcome in share.items()}

    def abort(self, handles: Sequence[HandleName]) -> None:
        jobs = {handle.job for handle in handles}

        def abort(committer: Committer) -> None:
            seen = {doubt.handle for job in jobs for doubt in committer.in_doubt(job)}
            if share := [handle for handle in handles if handle in seen]:
                committer.abort(share)

        attempt_all([partial(abort, committer) for committer in self._committers], self.run_calls)

    def forsake(self, committables: Sequence[Committable]) -> None:
        """See ``Committer``."""
        routed = self._routed(committables)
        attempt_all(
            [partial(committer.forsake, share) for committer, share in routed], self.run_calls
        )

    def shown(self, committables: Sequence[Committable]) -> Sequence[Shown]:
        """See ``Committer``; each with the number of its sink."""
        routed = self._routed(committables)
        results = self.run_calls([partial(committer.shown, share) for committer, share in routed])
        raise_all(outcome for outcome in results if isinstance(outcome, Exception))
        return [
            replace(shown, sink=self._number_of(share[0].handle))
            for (_, share), marks in zip(routed, answers(results), strict=True)
            for shown in marks
        ]

    def look_back(self, past: Past) -> Sequence[LookedBack]:
        """See ``Committer``.

        Raises:
            Exception: as ``inspect``.
        """
        numbers = [
            [n for n, at in self._place.items() if at == place]
            for place in range(len(self._committers))
        ]
        pasts = [past.of(mine) for mine in numbers]
        asked = [
            (committer, of, mine)
            for committer, of, mine in zip(self._committers, pasts, numbers, strict=True)
            if of.noted or of.own or not past.running
        ]
        calls = [partial(committer.look_back, of) for committer, of, _ in asked]
        looks = []
        for found, (*_, mine) in zip(answers(self.run_calls(calls)), asked, strict=True):
            # What is found without a mark is of the system: the first of its sinks is named.
            looks += [
                replace(look, sink=look.sink if look.sink in mine else min(mine)) for look in found
            ]
        return looks

    def systems(self) -> Sequence[Committer]:
        return self._committers

    @property
    def run_calls(self) -> CallRunner:
        return self._run_calls

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        """See ``Committer``.

        Raises:
            Exception: as ``inspect``.
        """
        results = self.run_calls(
            [partial(committer.in_doubt, job) for committer in self._committers]
        )
        # Two sinks on one server see the same handles.
        return list({d.handle: d for share in answers(results) for d in share}.values())

    def forget(self, state: JobState) -> None:
        forgets = [partial(committer.forget, state) for committer in self._committers]
        attempt_all(forgets, self.run_calls)

    def _routed(
        self, committables: Sequence[Committable]
    ) -> list[tuple[Committer, list[Committable]]]:
        shares: dict[int, list[Committable]] = {}
        for committable in sorted(committables, key=lambda c: self._number_of(c.handle)):
            number = self._number_of(committable.handle)
            if number not in self._place:
                raise self._gone(number, committable)
            shares.setdefault(self._place[number], []).append(committable)
        return [(self._committers[place], share) for place, share in shares.items()]


class GroupWriter(Protocol):
    """Writes one task's share of one epoch to several sinks. Not thread-safe; used once.

    All of its rows have one handle, so they become visible together. Otherwise as ``Writer``.
    """

    def bury_in(self, sink: int, elsewhere: Callable[[pa.RecordBatch], object]) -> None:
        """Give dead letters of that sink to another one; before its first row."""
        ...

    def write(self, sink: int, batch: pa.RecordBatch) -> None:
        """Write a batch to the sink of that number.

        It sees rows that this writer wrote before to other sinks, as foreign keys need.

        Raises:
            DataError: the batch does not fit the target; the writer must then be aborted.
            TargetError: the target refused or went away; the writer must then be aborted.
        """
        ...

    def pre_commit(self) -> Committable | None:
        """Make all rows durable and return their handle; None if no row was written."""
        ...

    def abort(self) -> None:
        """Discard rows that are not pre-committed, at best effort. Never raises or undoes a handle."""
        ...


class SinkGroup(Protocol):
    """Sinks of one system, by number, that can share a transaction.

    Either each task has the transaction (``by_task``: ``writer`` replaces the sinks' own writers), or
    the commit process has it: the sinks keep their writers, and ``committer`` applies all pre-commits
    in one transaction.
    """

    @property
    def by_task(self) -> bool: ...

    def writer(self, task: Task) -> GroupWriter:
        """The writer for all sinks of one task.

        Args:
            task: its partition holds the number of one of the sinks, and so will the handle.
        """
        ...

    def committer(self, *, co_commit: bool) -> Committer:
        """The committer for the handles of all these sinks.

        Args:
            co_commit: the job has no other sinks and its register is in their system; return a
                committer that co-commits if the protocol allows it.
        """
        ...
