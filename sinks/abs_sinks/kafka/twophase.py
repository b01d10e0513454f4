"""Protocol 2pc: one transaction per task, flushed and left open for the driver to end."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from abs_clients.kafka import timeouts
from abs_clients.kafka.producer_ids import ProducerState, describe_producers, init_producer_id
from abs_clients.kafka.transactions import (
    NEVER_MS,
    OPEN,
    Description,
    Partition,
    Reply,
    State,
    TransactionView,
    describe,
    describe_and_list_late,
    describe_open,
    end,
    listed,
)
from abs_core.aborting import abort_each
from abs_core.contracts import Committer, Task
from abs_core.crash import CrashPoint, is_armed, reached
from abs_core.errors import FencedError, NotPreparedError, TargetError
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
from abs_core.patience import Patience
from abs_sinks.kafka import lookback
from abs_sinks.kafka.columnar.recordbatch import SEQUENCES
from abs_sinks.kafka.open_transaction import (
    OpenTransaction,
    is_ending,
    is_id,
    outcome,
    parse_id,
    pattern_of,
    with_open,
)
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.places import TopicIds, offsets_of
from abs_sinks.kafka.producer_pool import PooledProducer, ProducerPool
from abs_sinks.kafka.records import Digest, Records
from abs_sinks.kafka.sending import RecordSender, sender_in
from abs_sinks.kafka.writer import RecordWriter


class TwoPhaseWriter(RecordWriter):
    """Sends records in a transaction of its own, which begins with the first row.

    It pre-commits only when every record is acknowledged and the partitions count as many records of
    the transaction as were sent. The count is left out if the principal may not read the topic.
    """

    def __init__(
        self, options: KafkaOptions, schema: pa.Schema, task: Task, pool: ProducerPool
    ) -> None:
        super().__init__(options, schema, task)
        self._pool = pool
        self._slot: PooledProducer | None = None
        self._sender: RecordSender | None = None
        self._ids = TopicIds(options, task)
        self._digest = Digest()
        self._begun = 0.0

    def abort(self) -> None:
        if self._slot is not None:
            self._pool.give_up(self._slot)
            self._slot = None

    def _keep_checked(self, batch: pa.RecordBatch | None, checked: Records) -> None:
        self._ids.before(checked)
        sender = self._sender or self._begin()
        self._digest.feed(checked)
        with self._in_time():
            sender.send(checked)

    def _complete(self) -> None:
        assert self._sender is not None
        with self._in_time():
            self._sender.flush()

    def _prepared(self) -> Committable:
        assert self._slot is not None
        assert self._sender is not None
        sender = self._sender
        # While the slot is still WRITING: if this raises, the writer's `abort` gives it up.
        prepared = self._look(self._slot, sender.rows)
        self._pool.prepared(self._slot)
        self._slot = None
        extra = tuple(sorted((*prepared.extra, *self._ids.extra.items())))
        return Committable(self._task.handle, sender.rows, self._digest.text, extra)

    def _begin(self) -> RecordSender:
        slot = self._pool.take(self._task)
        self._slot = slot
        assert slot.producer is not None
        slot.producer.begin()
        self._sender = sender_in(slot.producer, self._options, self._patience.seconds)
        self._begun = time.monotonic()
        return self._sender

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Tell a transaction that timed out from a fenced one, by the clock: the error is the same."""
        try:
            yield
        except FencedError as error:
            taken = time.monotonic() - self._begun
            settings = self._options.kafka
            if settings.two_phase or taken * 1000 < settings.transaction_timeout_ms:
                raise
            raise NotPreparedError(
                f"The task has written for {taken:.0f} s, and its broker has ended the transaction: "
                f"kafka.transaction.timeout.ms is {settings.transaction_timeout_ms}.",
                handle=self._task.handle,
                remedy="raise it, or make epochs smaller; nothing of it is lost, the task is tried "
                "again.",
            ) from error

    def _look(self, slot: PooledProducer, rows: int) -> OpenTransaction:
        """The transaction as its coordinator describes it; librdkafka does not expose producer ids."""
        settings, name = self._options.kafka, str(slot.name)
        looked = self._patience.retry(lambda: describe_open(settings, name, self._pool.written))
        now = looked.now
        if now is None or now.state is not State.ONGOING:
            raise NotPreparedError(
                "The transaction that was just written is not open any more: "
                f"{'its id is unknown' if now is None else f'it is {now.state}'}. A newer run has "
                "ended it, or it took longer than kafka.transaction.timeout.ms.",
                handle=self._task.handle,
                remedy="the task is tried again; if it happens again, raise "
                "kafka.transaction.timeout.ms.",
            )
        found = self._count(now, looked, rows)
        if found is not None:
            self._pool.written = now.partitions
        return OpenTransaction(
            held_as=slot.name,
            producer_id=now.producer_id,
            epoch=now.epoch,
            end_txn=looked.end_txn,
            timeout_ms=now.timeout_ms,
            start_ms=now.start_ms,
            offsets=offsets_of(now.partitions, found),
        )

    def _count(
        self, now: Description, looked: TransactionView, rows: int
    ) -> Mapping[Partition, ProducerState | None] | None:
        """The partitions' records of this transaction; None: the principal may not ask.

        Raises:
            TargetError: their number differs from the records sent.
        """
        states = looked.found
        # From so many records on, sequence numbers may begin again: they are no count.
        if states is None or rows >= SEQUENCES:
            return states
        if _records(now, states) != rows:
            # A former leader may lag: ask the present leaders.
            states = self._patience.retry(
                lambda: describe_producers(self._options.kafka, now.partitions, now.producer_id)
            )
        if (there := _records(now, states)) != rows:
            raise TargetError(
                f"{rows} records were sent and acknowledged, but the brokers have {there}.",
                handle=self._task.handle,
                remedy="nothing of it is committed. Please report it, with the broker's version.",
            )
        return states


class TwoPhaseCommitter(Committer):
    """A ``Committer`` for open transactions.

    A transaction of this process is listed and aborted by its handle, one of another process by its
    transactional id (``Committable.held_as``). The latter is swept under a higher generation unless a
    decision names it; under its own, its process, the timeout or the next run ends it.

    Args:
        own: this process's pools, of all jobs and generations.
    """

    def __init__(
        self, options: KafkaOptions, own: Callable[[], Iterable[ProducerPool]] = lambda: ()
    ) -> None:
        self._options = options
        self._own = own
        self._marking: set[str] = set()  # transactional ids whose commit may lack markers

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        """See ``Committer``. The time left is the lesser by this machine's and the broker's clock."""
        transactions = {c.handle: OpenTransaction.of(c) for c in committables}
        theirs = [p for p in transactions.values() if p is not None]
        patience = self._options.patience
        now, late = describe_and_list_late(
            self._options.kafka, [str(p.held_as) for p in theirs], _late_by(theirs, patience)
        )
        return {
            handle: Inspection(Outcome.UNKNOWN)
            if prepared is None
            else _inspection(prepared, now.get(str(prepared.held_as)), late, patience)
            for handle, prepared in transactions.items()
        }

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        """See ``Committer``. A commit is durable with its coordinator's reply.

        Its markers, which make the records visible, follow: ``forget`` waits for them, so that the
        register notes the end of the epoch meanwhile.
        """
        transactions = {c.handle: OpenTransaction.of(c) for c in committables}
        theirs = {handle: p for handle, p in transactions.items() if p is not None}
        point = CrashPoint.BETWEEN_COMMITS
        replies = end(
            self._options.kafka,
            [p.ending for p in theirs.values()],
            commit=True,
            between=partial(reached, point) if is_armed(point) else None,
        )
        done = {text for text, reply in replies.items() if reply is Reply.DONE}
        # A refusal proves no loss: the coordinator's state of the id tells the outcome (I7).
        now = self._ended(sorted(replies.keys() - done))
        self._marking |= done
        outcomes = dict.fromkeys(transactions, Outcome.UNKNOWN)
        for handle, prepared in theirs.items():
            text = str(prepared.held_as)
            outcomes[handle] = (
                Outcome.COMMITTED if text in done else outcome(prepared, now.get(text))
            )
        return outcomes

    def abort(self, handles: Sequence[HandleName]) -> None:
        """See ``Committer``. Other processes' transactions are named by their transactional ids."""
        # An ended transaction is left alone: fencing it would destroy the proof of its outcome.
        open_now = with_open(self._options.kafka, [handle for handle in handles if is_id(handle)])

        def abort(handle: HandleName) -> None:
            if is_id(handle):
                init_producer_id(self._options.kafka, str(handle))
            else:
                any(producers.abort(handle) for producers in self._own())

        abort_each([*(h for h in handles if not is_id(h)), *open_now], abort)

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        """See ``Committer``; with None, of every job."""
        open_now = listed(self._options.kafka, OPEN, pattern=pattern_of(job))
        names = ((text, parse_id(text)) for text in open_now)
        mine = {text: name for text, name in names if name and job in (None, name.job)}
        held: dict[HandleName, HandleName | None] = {}
        for producers in self._own():
            held |= producers.held()
        now = describe(self._options.kafka, list(mine))
        clock = time.time()
        doubts = []
        for text, name in mine.items():
            handle = held.get(name, name)
            seen = now.get(text)
            if handle is None or seen is None or seen.state not in OPEN:
                continue  # just being written here, or it has ended meanwhile
            age = max(0.0, clock - seen.start_ms / 1000) if seen.start_ms > 0 else None
            lasting = seen.timeout_ms == NEVER_MS
            doubts.append(InDoubt(handle, age, _detail(text, seen), lasting=lasting))
        return doubts

    def forget(self, state: JobState) -> None:
        """Wait until what was committed is visible, ``MARKER_SECONDS`` at most.

        It deletes nothing: the proof is the coordinator's state of the id, and ends with its reuse.
        """
        self._ended(sorted(self._marking))
        self._marking.clear()

    def shown(self, committables: Sequence[Committable]) -> Sequence[Shown]:
        return lookback.shown(self._options, committables)

    def look_back(self, past: Past) -> Sequence[LookedBack]:
        return lookback.look_back(self._options, past)

    def _ended(self, ids: Sequence[str]) -> dict[str, Description | None]:
        """The coordinators' descriptions after the markers are written, or ``MARKER_SECONDS``."""
        deadline = time.monotonic() + timeouts.MARKER_SECONDS
        pause = 0.002
        while True:
            now = describe(self._options.kafka, ids)
            if not any(is_ending(seen) for seen in now.values()) or time.monotonic() > deadline:
                return now
            time.sleep(pause)
            pause = min(2 * pause, 0.1)


def _late_by(
    prepared: Sequence[OpenTransaction], patience: Patience
) -> list[tuple[list[int], int]]:
    """Producer ids, and the age in ms at which too little of their timeout is left to decide."""
    # The broker's clock compares it: a slow clock here would decide what the broker is about to abort.
    needed_ms = round(patience.to_decide * 1000)
    by_timeout: dict[int, list[int]] = defaultdict(list)
    for transaction in prepared:
        if transaction.timeout_ms != NEVER_MS:
            by_timeout[transaction.timeout_ms].append(transaction.producer_id)
    return [(ids, max(0, timeout - needed_ms)) for timeout, ids in sorted(by_timeout.items())]


def _inspection(
    prepared: OpenTransaction, now: Description | None, late: frozenset[str], patience: Patience
) -> Inspection:
    state = outcome(prepared, now)
    if state is not Outcome.PREPARED or prepared.timeout_ms == NEVER_MS:
        return Inspection(state)
    left = (prepared.start_ms + prepared.timeout_ms) / 1000 - time.time()
    setting = "kafka.transaction.timeout.ms"
    if str(prepared.held_as) in late:
        left = min(left, patience.to_decide - 1)
    elif left < patience.to_decide:
        setting += "; by this machine's clock only: set it if it is ahead of the brokers' clocks"
    elif left > prepared.timeout_ms / 1000:
        # A clock that is behind cannot tell how much is left: count on what the broker has said.
        left = patience.to_decide
        setting += "; this machine's clock is behind the brokers' clocks: set it"
    return Inspection(state, max(0.0, left), setting)


def _detail(text: str, seen: Description) -> str:
    where = offsets_of(seen.partitions) or "no partition"
    limit = "no timeout" if seen.timeout_ms == NEVER_MS else f"timeout {seen.timeout_ms / 1000:g} s"
    return (
        f"transaction {text} ({seen.state}, producer {seen.producer_id} epoch {seen.epoch}, "
        f"{limit}) on {where}"
    )


def _records(now: Description, producers: Mapping[Partition, ProducerState | None]) -> int:
    return sum(p.last_sequence + 1 for p in producers.values() if p and p.epoch == now.epoch)
