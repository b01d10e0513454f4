"""Protocol wal: ONE transaction writes the records of an epoch's segments, and the proof of it.

With the register in this cluster the proof is the register's cell, in the same transaction
(``WalCoCommitter``). With a register elsewhere (an epoch over several sinks) it is a **ledger**: a cell
``<job>+wal`` in the register's topic that lists the committed handles. Only a cell's fenced producer
writes it, so two coordinators cannot both commit a segment, and an overtaken one commits nothing.
There the records are sent once before the decision, too (``rehearsal``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from abs_core.aborting import abort_each
from abs_core.contracts import Committer, Conflict, Task, Version
from abs_core.crash import CrashPoint
from abs_core.errors import AbsError, NotPreparedError, RefusedError
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
from abs_core.protocol import sweepable
from abs_core.wal import SegmentStore, SegmentWriter, read_segment
from abs_sinks.kafka import lookback
from abs_sinks.kafka.changes import has_positions, in_order
from abs_sinks.kafka.ledger import (
    check_log,
    gone,
    handles_in_ledger,
    newest_of,
    place_for,
    to_text,
    without_proof,
)
from abs_sinks.kafka.mark import Ends
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.places import present_ids, with_ids
from abs_sinks.kafka.records import SEGMENT, Records, records_in, segment_of
from abs_sinks.kafka.register.session import Rows
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.rehearsal import Rehearsal, Send
from abs_sinks.kafka.sending import TransactionalProducer, sender_in
from abs_sinks.kafka.writer import RecordWriter
from abs_sinks.wal import segment_store

log = logging.getLogger(__name__)

ROOM = 0.8
"""The fraction of ``transaction.timeout.ms`` in which an epoch's records must be sent."""


class WalWriter(RecordWriter):
    """Writes the task's records to a segment of the write-ahead log.

    A segment whose seal got no reply is swept, as any that no decision names: its name is unique (I6).

    Args:
        store: of segments; the driver must see it too.
        ledger: whether the register is elsewhere, so that a ledger is the proof.
    """

    def __init__(
        self,
        options: KafkaOptions,
        schema: pa.Schema,
        task: Task,
        store: SegmentStore,
        *,
        ledger: bool,
    ) -> None:
        super().__init__(options, schema, task)
        self._ledger = ledger
        self._log = store.url
        sent = self._encoding.schema
        self._kept = [name for name in sent.names if name not in self._columns.left_out]
        self._schema = pa.schema([sent.field(name) for name in self._kept])
        if self._changes is not None:
            self._schema = self._changes.segment(schema)
        elif options.letters is not None:
            self._schema = SEGMENT
        self._segment = SegmentWriter(store, task.handle, self._schema)

    def abort(self) -> None:
        self._segment.abort()

    def _keep_checked(self, batch: pa.RecordBatch | None, checked: Records) -> None:
        if self._changes is not None or self._options.letters is not None:
            self._segment.write(self._as_segment(batch, checked))
            return
        assert self._encoded is not None, "it was checked"
        kept = self._encoded.select(self._kept)
        if kept.schema.types == self._schema.types:
            # The schemas may differ in nullability.
            kept = pa.RecordBatch.from_arrays(kept.columns, schema=self._schema)
        self._segment.write(kept)

    def _as_segment(self, batch: pa.RecordBatch | None, records: Records) -> pa.RecordBatch:
        columns = list(segment_of(records).columns)
        for n, field in enumerate(list(self._schema)[len(columns) :]):
            at = None if self._changes is None else self._changes.positions[n]
            if batch is None or at is None:
                columns.append(pa.nulls(records.rows, field.type))
            else:
                columns.append(batch.column(at))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _complete(self) -> None:
        """Nothing: ``_prepared`` seals the segment."""

    def _prepared(self) -> Committable:
        place = place_for(self._options, self._task) if self._ledger else None
        seal = self._segment.finish()
        assert seal is not None, "rows were written"
        made = seal.committable()
        return made if place is None else replace(place, log=self._log).noted(made)


class WalCommitter(Committer):
    """For segments, which stay the handles: composing only asks whether they can be sent."""

    composes = True

    def __init__(self, options: KafkaOptions, store: SegmentStore) -> None:
        self._options = options
        self._store = store
        self._register = KafkaRegister(options)
        self._ends: Mapping[str, Ends] = {}
        self._sent_to: Mapping[str, str] = {}  # the topic's id, of the last records sent

    def compose(self, committables: Sequence[Committable]) -> Sequence[Committable]:
        """See ``Committer``. It changes nothing that a reader with read_committed sees.

        Raises:
            RowError, RefusedError, SchemaError: the brokers do not accept the records.
            NotPreparedError, CorruptionError: a segment is not as it was pre-committed.
        """
        # A rehearsal raises them, and would hide what is gone.
        self._ends = lookback.ends_of(self._options)
        ids = present_ids(self._options)
        for job, of_job in by_job(committables).items():
            Rehearsal(self._options, self._store, job, self._sends).run(of_job)
        return [with_ids(committable, ids) for committable in committables]

    def _sends(self, committables: Sequence[Committable]) -> Send:
        return sending(self._options, self._store, committables, None).send

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        """See ``Committer``. It reads every segment; a damaged one is a ``CorruptionError``."""
        gone = [c for c in committables if not is_whole(self._store, c)]
        states = {c.handle: Inspection(Outcome.PREPARED) for c in committables}
        for committable in gone:
            done = committable.handle in self._ledger(committable.handle.job)[1]
            outcome = Outcome.COMMITTED if done else Outcome.UNKNOWN
            states[committable.handle] = Inspection(outcome)
        return states

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        """See ``Committer``. One transaction commits all segments of a job, or none.

        Raises:
            ConfigError: the options name another ledger's topic or another log; nothing was sent.
            CorruptionError: the ledger is gone, or a segment is damaged; nothing was sent.
        """
        outcomes: dict[HandleName, Outcome] = {}
        for job, of_job in by_job(committables).items():
            outcomes |= self._options.patience.retry(partial(self._commit, job, of_job))
        self._delete([c.handle for c in committables if outcomes[c.handle] is Outcome.COMMITTED])
        return outcomes

    def abort(self, handles: Sequence[HandleName]) -> None:
        listed = {e.handle for job in {h.job for h in handles} for e in self._store.list(job)}
        mine = [handle for handle in handles if handle in listed]
        abort_each(mine, lambda handle: self._store.delete([handle]))

    def forsake(self, committables: Sequence[Committable]) -> None:
        """See ``Committer``: it deletes the segments, then fences the ledger's producers."""
        for delete in ((), [c.handle for c in committables]):
            self._store.delete(delete)
            # Also before: a ledger that refuses would leave a loss that is neither undone nor recorded.
            for job in by_job(committables):
                self._options.patience.retry(partial(self._fence, job))

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        return [entry.in_doubt(self._store.url) for entry in self._store.list(job)]

    def shown(self, committables: Sequence[Committable]) -> Sequence[Shown]:
        """See ``Committer``. Where another process has sent the records, the ids are of before it."""
        sent = [with_ids(committable, self._sent_to) for committable in committables]
        return lookback.shown(self._options, sent)

    def look_back(self, past: Past) -> Sequence[LookedBack]:
        """See ``Committer``: whether the ledger has later handles. 2pc's committer looks at topics."""
        if past.running:
            # Nothing of this epoch was rehearsed: the ends are from before an earlier one.
            ends = self._ends if past.own else {}
            return lookback.compare(past, ends, named=False) if ends else ()
        newest = newest_of(self._ledger(past.job)[1], past.register)
        positions = [(handle.generation, handle.epoch) for handle in newest]
        return [LookedBack(0, ahead=ahead) for ahead in positions if ahead > past.decided]

    def forget(self, state: JobState) -> None:
        """Remove finished handles from the ledger, but the newest, and those that have a segment."""
        # A coordinator stalled since before the finish would find such a segment whole, and send it
        # again. Without the segment there is nothing to send. The newest tells of a register that
        # went back (``look_back``).
        try:
            version, done = self._ledger(state.job)
            spent = {h for h in done if sweepable(state, state.generation, h)}
            spent -= newest_of(done, state.register)
            if spent:
                spent -= {entry.handle for entry in self._store.list(state.job)}
            if spent:
                kept = done - spent
                self._register.swap_text(ledger_key(state.job), version, to_text(kept))
        except AbsError as error:
            log.debug("the ledger of job %s stays as it is for now: %s", state.job, error)

    def _commit(self, job: str, committables: Sequence[Committable]) -> dict[HandleName, Outcome]:
        while True:
            version, done = self._ledger(job)
            left = [c for c in committables if c.handle not in done]
            # Before anything is sent: an empty ledger in a new topic would send all again.
            lost = without_proof(self._options, left)
            ready = [c for c in left if is_whole(self._store, c)]
            for committable in ready:
                if committable in lost:
                    raise gone(committable, self._options.registertopic, self._store.url)
            outcomes = dict.fromkeys((c.handle for c in committables), Outcome.COMMITTED)
            unknown = [c for c in left if c not in ready]
            check_log(unknown, self._store.url)
            outcomes |= dict.fromkeys((c.handle for c in unknown), Outcome.UNKNOWN)
            if not ready:
                return outcomes
            rows = sending(self._options, self._store, ready, CrashPoint.BETWEEN_COMMITS)
            # Against the version that was read: a rival that has sent them makes it a conflict.
            swapped = self._register.swap_text(
                ledger_key(job),
                version,
                to_text(done | {c.handle for c in ready}),
                replace(rows, send=partial(self._send_noted, rows.send)),
            )
            if not isinstance(swapped, Conflict):
                return outcomes

    def _send_noted(self, send: Send, transactions: TransactionalProducer) -> None:
        self._sent_to = present_ids(self._options)
        send(transactions)

    def _fence(self, job: str) -> None:
        """Write the ledger as it is: what read it before cannot commit, what reads it later looks."""
        while True:
            version, done = self._ledger(job)
            swapped = self._register.swap_text(ledger_key(job), version, to_text(done))
            if not isinstance(swapped, Conflict):
                return

    def _ledger(self, job: str) -> tuple[Version | None, set[HandleName]]:
        cell = self._register.load_text(ledger_key(job))
        return (None, set()) if cell is None else (cell.version, handles_in_ledger(job, cell.text))

    def _delete(self, handles: Sequence[HandleName]) -> None:
        """Delete committed segments; a later sweep deletes those that cannot be deleted now."""
        try:
            self._store.delete(handles)
        except AbsError as error:
            log.warning("committed segments stay for now: %s", error)


class WalCoCommitter(WalCommitter):
    """A ``Committer`` that co-commits: records and register are one transaction."""

    co_commits = True

    def shown(self, committables: Sequence[Committable]) -> Sequence[Shown]:
        """See ``Committer``. As it is before the transaction of records and register.

        So an id tells of the last epoch, too, and the ends tell of those before it.
        """
        return lookback.shown(self._options, committables, before=True)

    def forget(self, state: JobState) -> None:
        """Nothing: the register is the proof, and there is no ledger."""

    def look_back(self, past: Past) -> Sequence[LookedBack]:
        """Nothing: there is no ledger."""
        return ()

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        """See ``Committer``.

        Raises:
            CorruptionError: a segment is damaged; nothing was changed.
            RefusedError: the records take longer than the transaction may be open.
        """
        rows = sending(self._options, self._store, committables, CrashPoint.INSIDE_CO_COMMIT)
        swapped = self._register.compare_and_set(
            state.job, expected, state, rows=rows if committables else None
        )
        # After a conflict they stay: the next try may have to send them.
        if not isinstance(swapped, Conflict):
            self._delete([c.handle for c in committables])
        return swapped


def by_job(committables: Sequence[Committable]) -> dict[str, list[Committable]]:
    jobs = sorted({c.handle.job for c in committables})
    return {job: [c for c in committables if c.handle.job == job] for job in jobs}


def ledger_key(job: str) -> str:
    return f"{job}+wal"  # no job's key has a plus sign


def store_of(options: KafkaOptions) -> SegmentStore:
    """The store of the option ``wal``."""
    assert options.wal is not None, "protocol=wal without it is refused (KafkaOptions.parse)"
    return segment_store(options.wal)


def sending(
    options: KafkaOptions,
    store: SegmentStore,
    committables: Sequence[Committable],
    point: CrashPoint | None,
) -> Rows:
    """These segments' records, in this order.

    Sending them raises ``NotPreparedError`` or ``CorruptionError`` for a segment that is not as
    pre-committed, and ``RefusedError`` if it takes too long for the transaction's timeout.
    """

    def send(transactions: TransactionalProducer) -> None:
        timeout = options.kafka.transaction_timeout_ms / 1000
        # The rest of the timeout is for the commit.
        deadline = time.monotonic() + ROOM * timeout
        sender = sender_in(transactions, options, ROOM * timeout)
        for batch in _batches(store, committables):
            sender.send(records_in(batch, options.topic))
            if time.monotonic() > deadline:
                raise _too_long(committables[-1], timeout)
        sender.flush()
        if time.monotonic() > deadline:
            raise _too_long(committables[-1], timeout)

    return Rows(send, options.kafka.transaction_timeout_ms, point)


def _batches(store: SegmentStore, committables: Sequence[Committable]) -> Iterator[pa.RecordBatch]:
    """The segments' batches, each segment checked; changes are in order."""
    batches = _as_written(store, committables)
    first = next(batches, None)
    if first is not None and has_positions(first.schema):
        yield from in_order(lambda: _as_written(store, committables), committables)
    elif first is not None:
        yield first
        yield from batches


def _as_written(
    store: SegmentStore, committables: Sequence[Committable]
) -> Iterator[pa.RecordBatch]:
    for committable in committables:
        yield from read_segment(store, committable)


def is_whole(store: SegmentStore, committable: Committable) -> bool:
    """Whether a segment is complete; ``CorruptionError`` if it is damaged."""
    try:
        next(iter(read_segment(store, committable)), None)  # it is checked before its first batch
    except NotPreparedError:
        return False
    return True


def _too_long(committable: Committable, timeout: float) -> RefusedError:
    return RefusedError(
        f"The records of the epoch take longer than {ROOM:.0%} of kafka.transaction.timeout.ms "
        f"({timeout:g} s) to send in one transaction; nothing is committed.",
        job=committable.handle.job,
        epoch=committable.handle.epoch,
        remedy="make epochs smaller (maxOffsetsPerTrigger, maxFilesPerTrigger), raise "
        "kafka.transaction.timeout.ms, or set protocol=2pc, whose tasks send in parallel.",
    )
