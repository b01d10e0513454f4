"""What the coordinator acts with: inspects, commits and aborts open transactions, from any process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from abs_clients.kafka.producer_ids import init_producer_id
from abs_clients.kafka.transactions import (
    Description,
    Reply,
    State,
    describe,
    describe_and_list_late,
    end,
    listed,
)
from abs_core.aborting import abort_each
from abs_core.crash import CrashPoint, reached
from abs_core.model import Committable, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_core.patience import Patience
from abs_sinks.kafka.ids import is_id, parse_id, pattern_of
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.prepared import Prepared, is_ending, outcome
from abs_sinks.kafka.producers import Producers

MARKER_SECONDS = 10.0
"""For how long the markers of a commit are waited for, so that readers see what is committed."""

_OPEN = (State.ONGOING, State.PREPARE_ABORT, State.PREPARE_COMMIT, State.PREPARE_EPOCH_FENCE)


class TransactionCommitter:
    """A ``Committer`` for open transactions.

    A transaction of this process is in doubt under its handle's name, and may be aborted by that
    name. One of another process is known by its transactional id only (``Committable.held_as``): it
    is swept under a higher generation, unless a decision names it; of the own generation, its own
    process ends it, or the timeout, or the next run.

    Args:
        own: the producers of this process, for all jobs and generations.
    """

    def __init__(
        self, options: KafkaOptions, own: Callable[[], Iterable[Producers]] = lambda: ()
    ) -> None:
        self._options = options
        self._own = own

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        """See ``Committer``. The time left is the least by this machine's and the broker's clock."""
        known = {c.handle: Prepared.of(c) for c in committables}
        ids = [str(p.held_as) for p in known.values() if p is not None]
        patience = self._options.patience
        late_by = _late_by([p for p in known.values() if p is not None], patience)
        now, late = describe_and_list_late(self._options.kafka, ids, late_by)
        return {
            handle: Inspection(Outcome.UNKNOWN)
            if prepared is None
            else _inspection(prepared, now.get(str(prepared.held_as)), late, patience)
            for handle, prepared in known.items()
        }

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        """See ``Committer``. Returns when readers see what was committed, or nearly so.

        A commit is durable with its coordinator's reply; the markers that make it visible follow
        within milliseconds and are waited for, at most ``MARKER_SECONDS``.
        """
        known = {c.handle: Prepared.of(c) for c in committables}
        theirs = {handle: p for handle, p in known.items() if p is not None}
        replies = end(
            self._options.kafka,
            [p.ending for p in theirs.values()],
            commit=True,
            between=lambda: reached(CrashPoint.BETWEEN_COMMITS),
        )
        now = self._ended(theirs.values())
        found = dict.fromkeys(known, Outcome.UNKNOWN)
        for handle, prepared in theirs.items():
            text = str(prepared.held_as)
            done = replies[text] is Reply.DONE
            found[handle] = Outcome.COMMITTED if done else outcome(prepared, now.get(text))
        return found

    def abort(self, handles: Sequence[HandleName]) -> None:
        """See ``Committer``. Handles of other processes are known by their transactional ids only."""
        others = [handle for handle in handles if is_id(handle)]
        now = describe(self._options.kafka, [str(name) for name in others])
        # What has ended is left alone: to fence it would destroy the proof of how it ended.
        open_now = [name for name in others if _is_ongoing(now.get(str(name)))]

        def abort(handle: HandleName) -> None:
            if is_id(handle):
                init_producer_id(self._options.kafka, str(handle))
            else:
                any(producers.abort(handle) for producers in self._own())

        abort_each([*(h for h in handles if not is_id(h)), *open_now], abort)

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        """See ``Committer``; with None, of every job."""
        open_now = listed(self._options.kafka, _OPEN, pattern=pattern_of(job))
        names = {text: name for text in open_now if (name := parse_id(text)) is not None}
        mine = {text: name for text, name in names.items() if job in (None, name.job)}
        held: dict[HandleName, HandleName | None] = {}
        for producers in self._own():
            held |= producers.held()
        now = describe(self._options.kafka, list(mine))
        clock = time.time()
        found = []
        for text, name in mine.items():
            handle = held.get(name, name)
            seen = now.get(text)
            if handle is None or seen is None or seen.state not in _OPEN:
                continue  # just being written here, or it has ended meanwhile
            age = max(0.0, clock - seen.start_ms / 1000) if seen.start_ms > 0 else None
            found.append(InDoubt(handle, age, _detail(text, seen)))
        return found

    def forget(self, state: JobState) -> None:
        """Nothing to do: the proof is the coordinator's own state of an id, and goes with its reuse."""

    def _ended(self, prepared: Iterable[Prepared]) -> dict[str, Description | None]:
        """What the coordinators say once the markers of these are written, or time is up."""
        ids = [str(p.held_as) for p in prepared]
        deadline = time.monotonic() + MARKER_SECONDS
        pause = 0.002
        while True:
            now = describe(self._options.kafka, ids)
            if not any(is_ending(each) for each in now.values()) or time.monotonic() > deadline:
                return now
            time.sleep(pause)
            pause = min(2 * pause, 0.1)


def _late_by(prepared: Sequence[Prepared], patience: Patience) -> list[tuple[list[int], int]]:
    """Producer ids, and the milliseconds after which too little of their timeout is left to decide.

    To be compared by the broker's clock: with this machine's alone, one that is slow would decide what
    the broker is about to abort.
    """
    needed_ms = round(patience.to_decide * 1000)
    return [
        (
            [p.producer_id for p in prepared if p.timeout_ms == timeout_ms],
            max(0, timeout_ms - needed_ms),
        )
        for timeout_ms in sorted({p.timeout_ms for p in prepared})
    ]


def _inspection(
    prepared: Prepared, now: Description | None, late: frozenset[str], patience: Patience
) -> Inspection:
    found = outcome(prepared, now)
    if found is not Outcome.PREPARED:
        return Inspection(found)
    left = (prepared.start_ms + prepared.timeout_ms) / 1000 - time.time()
    if str(prepared.held_as) in late:
        left = min(left, patience.to_decide - 1)
    return Inspection(found, max(0.0, left))


def _is_ongoing(now: Description | None) -> bool:
    return now is not None and now.state is State.ONGOING


def _detail(text: str, seen: Description) -> str:
    where = ", ".join(f"{topic}-{partition}" for topic, partition in seen.partitions[:8])
    more = f" and {len(seen.partitions) - 8} more" if len(seen.partitions) > 8 else ""
    return (
        f"transaction {text} ({seen.state}, producer {seen.producer_id} epoch {seen.epoch}, "
        f"timeout {seen.timeout_ms / 1000:g} s) on {where or 'no partition'}{more}"
    )
