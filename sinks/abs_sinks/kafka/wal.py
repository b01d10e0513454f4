"""Protocol wal: an epoch's segments become records in ONE transaction, with the proof that they did.

Where the register lies in this cluster the proof is the register itself (``WalCoCommitter``): the
transaction carries all records and the cell, atomic over partitions and topics. Where it lies elsewhere
(an epoch over several sinks), a decision names segments, and the proof is a **ledger**: a cell of its
own beside the registers (``<job>+wal``) that lists the handles whose records are committed, written in
the transaction that commits them. Either cell is written by its fenced producer only, so two
coordinators cannot both commit a segment, and one that was overtaken commits nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from abs_core.aborting import abort_each
from abs_core.contracts import Conflict, Task, Version
from abs_core.crash import CrashPoint
from abs_core.errors import (
    AbsError,
    CorruptionError,
    NotPreparedError,
    OptionError,
    RefusedError,
)
from abs_core.model import Committable, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_core.protocol import sweepable
from abs_core.wal import SegmentStore, SegmentWriter, read_segment
from abs_sinks.kafka.ledger import (
    check_log,
    gone,
    handles_in_ledger,
    place_for,
    to_text,
    without_proof,
)
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import Records, plan_columns, records_of
from abs_sinks.kafka.register import KafkaRegister
from abs_sinks.kafka.register_session import Rows
from abs_sinks.kafka.sending import TransactionalProducer
from abs_sinks.kafka.writer import RecordWriter
from abs_sinks.wal import segment_store

log = logging.getLogger(__name__)

ROOM = 0.8
"""The part of ``transaction.timeout.ms`` that the records of an epoch may take to send."""


class WalWriter(RecordWriter):
    """Keeps the task's records as a segment of the write-ahead log; no broker sees them yet.

    A seal whose reply is lost is not looked for: the attempt's name is its own (I6), so the segment is
    swept like any other that no decision names.

    Args:
        store: where segments go; the driver must see it too.
        ledger: whether the register lies elsewhere, so that a ledger tells what is committed.
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
        # The others are not written (``Columns.left_out``).
        self._kept = [name for name in schema.names if name not in self._columns.left_out]
        self._schema = pa.schema([schema.field(name) for name in self._kept])
        self._segment = SegmentWriter(store, task.handle, self._schema)

    def abort(self) -> None:
        self._segment.abort()

    def _keep(self, batch: pa.RecordBatch, records: Records) -> None:
        kept = batch.select(self._kept)
        if kept.schema.types == self._schema.types:
            # Whether a batch says that a column can be null is not minded.
            kept = pa.RecordBatch.from_arrays(kept.columns, schema=self._schema)
        self._segment.write(kept)

    def _complete(self) -> None:
        """Nothing: a segment is whole only when it is sealed."""

    def _prepared(self) -> Committable:
        place = None
        if self._ledger:
            place = replace(place_for(self._options, self._task), log=self._log)
        seal = self._segment.finish()
        assert seal is not None, "rows were written"
        made = seal.committable()
        return made if place is None else place.noted(made)


class WalCommitter:
    """A ``Committer`` for segments.

    Args:
        store: where the segments are.
    """

    def __init__(self, options: KafkaOptions, store: SegmentStore) -> None:
        self._options = options
        self._store = store
        self._register = KafkaRegister(options)

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        """See ``Committer``. Every segment is read: what a decision names must be whole.

        Raises:
            CorruptionError: a segment is damaged.
        """
        gone = [c for c in committables if not is_whole(self._store, c)]
        found = {c.handle: Inspection(Outcome.PREPARED) for c in committables}
        for committable in gone:
            done = committable.handle in self._ledger(committable.handle.job)[1]
            outcome = Outcome.COMMITTED if done else Outcome.UNKNOWN
            found[committable.handle] = Inspection(outcome)
        return found

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        """See ``Committer``. All segments of one job are committed in one transaction, or none.

        Raises:
            ConfigError: their ledger lies in another topic, or they do in another log, than the options
                say; nothing was sent.
            CorruptionError: their ledger is gone, or a segment is damaged; nothing was sent.
        """
        found: dict[HandleName, Outcome] = {}
        for job in sorted({c.handle.job for c in committables}):
            of_job = [c for c in committables if c.handle.job == job]
            found |= self._options.patience.retry(lambda of=of_job, job=job: self._commit(job, of))  # type: ignore[misc]
        self._delete([c.handle for c in committables if found[c.handle] is Outcome.COMMITTED])
        return found

    def abort(self, handles: Sequence[HandleName]) -> None:
        listed = {e.handle for job in {h.job for h in handles} for e in self._store.list(job)}
        mine = [handle for handle in handles if handle in listed]
        abort_each(mine, lambda handle: self._store.delete([handle]))

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        return [
            InDoubt(
                entry.handle,
                entry.age_seconds,
                f"segment of {entry.size} bytes in {self._store.url}"
                f"{'' if entry.sealed else ', not sealed'}",
            )
            for entry in self._store.list(job)
        ]

    def forget(self, state: JobState) -> None:
        """Take handles out of the ledger that nobody can ask for again.

        One whose segment could not be deleted stays: a coordinator that read the decision before it
        was finished, and stands still since, would find the segment whole and send it again. Without
        its segment there is nothing to send, and what a finished decision lacks is not lost.
        """
        try:
            version, done = self._ledger(state.job)
            spent = {h for h in done if sweepable(state, state.generation, h)}
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
            lost = without_proof(self._options, left)
            ready = [c for c in left if is_whole(self._store, c)]
            for committable in ready:
                if committable in lost:
                    raise gone(committable, self._options.registertopic, self._store.url)
            found = dict.fromkeys((c.handle for c in committables), Outcome.COMMITTED)
            unknown = [c for c in left if c not in ready]
            check_log(unknown, self._store.url)
            found |= dict.fromkeys((c.handle for c in unknown), Outcome.UNKNOWN)
            if not ready:
                return found
            swapped = self._register.swap_text(
                ledger_key(job),
                version,
                to_text(done | {c.handle for c in ready}),
                sending(self._options, self._store, ready),
                self._options.kafka.transaction_timeout_ms,
                CrashPoint.BETWEEN_COMMITS,
            )
            if not isinstance(swapped, Conflict):
                return found

    def _ledger(self, job: str) -> tuple[Version | None, set[HandleName]]:
        cell = self._register.load_text(ledger_key(job))
        return (None, set()) if cell is None else (cell.version, handles_in_ledger(job, cell.text))

    def _delete(self, handles: Sequence[HandleName]) -> None:
        """Their records are committed. What cannot be deleted now is swept later."""
        try:
            self._store.delete(handles)
        except AbsError as error:
            log.warning("committed segments stay for now: %s", error)


class WalCoCommitter(WalCommitter):
    """A ``CoCommitter``: records and register are one transaction."""

    def forget(self, state: JobState) -> None:
        """The register is the proof: there is no ledger, and none is looked for at each epoch."""

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        """See ``CoCommitter``.

        Raises:
            CorruptionError: a segment is damaged; nothing was changed.
            RefusedError: the records take longer than the transaction may be open.
        """
        rows = sending(self._options, self._store, committables) if committables else None
        swapped = self._register.swap(
            state.job,
            expected,
            state,
            rows,
            self._options.kafka.transaction_timeout_ms,
            CrashPoint.INSIDE_CO_COMMIT,
        )
        if not isinstance(swapped, Conflict):
            self._delete([c.handle for c in committables])
        return swapped


def ledger_key(job: str) -> str:
    return f"{job}+wal"  # no job's key has a plus sign


def store_of(options: KafkaOptions) -> SegmentStore:
    """The store that the option ``wal`` names.

    Raises:
        OptionError: it names none.
    """
    if options.common.wal is None:
        raise OptionError(
            "protocol=wal needs the option wal: where tasks leave their records until the epoch is "
            "committed.",
            remedy="set wal=file:///... : a folder that every executor and the driver see.",
        )
    return segment_store(options.common.wal)


def sending(
    options: KafkaOptions, store: SegmentStore, committables: Sequence[Committable]
) -> Rows:
    """What sends the records of these segments, in this order, into an open transaction.

    It raises ``NotPreparedError`` or ``CorruptionError`` where a segment is not what was pre-committed,
    and ``RefusedError`` where there are too many records for the transaction's timeout.
    """

    def send(transactions: TransactionalProducer) -> None:
        timeout = options.kafka.transaction_timeout_ms / 1000
        deadline = time.monotonic() + ROOM * timeout
        sender = transactions.to(options.topic, ROOM * timeout)
        for committable in committables:
            before = sender.rows
            for batch in read_segment(store, committable):
                sender.send(records_of(batch, plan_columns(batch.schema, options.topic), before))
                if time.monotonic() > deadline:
                    raise _too_long(committable, timeout)
            if sender.rows - before != committable.rows:
                raise CorruptionError(
                    f"A segment has {sender.rows - before} rows, and {committable.rows} were told.",
                    handle=str(committable.handle),
                )
        sender.flush()
        if time.monotonic() > deadline:
            raise _too_long(committables[-1], timeout)

    return send


def is_whole(store: SegmentStore, committable: Committable) -> bool:
    """Whether a segment is there, every byte of it.

    Raises:
        CorruptionError: it is there, and damaged.
    """
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
