"""Protocol 2pc: one transaction per task, flushed and left open for the driver to end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from abs_clients.kafka.producer_ids import ProducerState, describe_producers
from abs_clients.kafka.transactions import (
    Description,
    Partition,
    State,
    TransactionView,
    describe_open,
)
from abs_core.contracts import Task
from abs_core.crash import CrashPoint, reached
from abs_core.errors import FencedError, NotPreparedError, TargetError
from abs_core.model import Committable
from abs_sinks.kafka.fit import Fit
from abs_sinks.kafka.initialised import Sending
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.prepared import Prepared, offsets_of
from abs_sinks.kafka.producers import Producers, Slot
from abs_sinks.kafka.records import plan_columns, records_of

_SEQUENCES = 1 << 31


class TransactionWriter:
    """Sends records in a transaction of its own, which begins with the first row.

    ``pre_commit`` returns only when every record is acknowledged, no failure was reported, and the
    partitions themselves count as many records of this transaction as were sent. The last is left
    out where the principal may not read the topic.

    Args:
        pool: of this process, for the task's job and generation.
    """

    def __init__(
        self, options: KafkaOptions, schema: pa.Schema, task: Task, pool: Producers
    ) -> None:
        self._options = options
        self._columns = plan_columns(schema, options.topic)
        self._task = task
        self._pool = pool
        self._fit = Fit(options)
        self._slot: Slot | None = None
        self._sender: Sending | None = None
        self._begun = 0.0

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        first = self._sender is None
        done = 0 if self._sender is None else self._sender.rows
        records = records_of(batch, self._columns, done)
        self._fit.check(records, done)
        sender = self._begin() if self._sender is None else self._sender
        with self._in_time():
            sender.send(records)
        if first:
            reached(CrashPoint.AFTER_FIRST_BATCH)

    def pre_commit(self) -> Committable | None:
        if self._slot is None or self._sender is None:
            return None
        with self._in_time():
            self._sender.flush()
        reached(CrashPoint.BEFORE_PRE_COMMIT)
        prepared = self._look(self._slot, self._sender.rows)
        self._pool.prepared(self._slot)
        self._slot = None
        reached(CrashPoint.AFTER_PRE_COMMIT)
        return Committable(
            self._task.handle, self._sender.rows, self._sender.digest, prepared.extra
        )

    def abort(self) -> None:
        if self._slot is not None:
            self._pool.give_up(self._slot)
            self._slot = None

    def _begin(self) -> Sending:
        slot = self._pool.take(self._task)
        self._slot = slot
        assert slot.producer is not None
        self._sender = slot.producer.begin(self._options.patience.seconds)
        self._begun = time.monotonic()
        return self._sender

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """A broker ends what takes too long as it ends a zombie's: tell them apart by the clock."""
        try:
            yield
        except FencedError as error:
            taken = time.monotonic() - self._begun
            if taken * 1000 < self._options.kafka.transaction_timeout_ms:
                raise
            raise NotPreparedError(
                f"The task has written for {taken:.0f} s, and its broker has ended the transaction: "
                f"kafka.transaction.timeout.ms is {self._options.kafka.transaction_timeout_ms}.",
                job=self._task.job,
                epoch=self._task.epoch,
                handle=str(self._task.handle),
                remedy="raise it, or make epochs smaller; nothing of it is lost, the task is tried "
                "again.",
            ) from error

    def _look(self, slot: Slot, rows: int) -> Prepared:
        """The transaction as its coordinator sees it; librdkafka does not tell its producer id."""
        settings, name = self._options.kafka, str(slot.name)
        looked = self._options.patience.retry(
            lambda: describe_open(settings, name, self._pool.written)
        )
        now = looked.now
        if now is None or now.state is not State.ONGOING:
            raise NotPreparedError(
                "The transaction that was just written is not open any more: "
                f"{'its id is unknown' if now is None else f'it is {now.state}'}. It took longer "
                "than kafka.transaction.timeout.ms, or a newer run has ended it.",
                job=self._task.job,
                epoch=self._task.epoch,
                handle=str(self._task.handle),
                remedy="the task is tried again; raise kafka.transaction.timeout.ms if it comes "
                "again.",
            )
        found = self._count(now, looked, rows)
        if found is not None:
            self._pool.written = now.partitions
        return Prepared(
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
        """What the partitions have of this transaction; None where they may not be asked.

        Raises:
            TargetError: it is not as many records as were sent.
        """
        found = looked.found
        if found is None or rows >= _SEQUENCES:
            return found
        if _records(now, found) != rows:
            # A broker that has just ceased to lead may lag: the leaders of now have the last word.
            found = self._options.patience.retry(
                lambda: describe_producers(self._options.kafka, now.partitions, now.producer_id)
            )
        if (there := _records(now, found)) != rows:
            raise TargetError(
                f"{rows} records were sent and acknowledged, and the brokers have {there}.",
                job=self._task.job,
                epoch=self._task.epoch,
                handle=str(self._task.handle),
                remedy="nothing of it is committed. Please report it, with the broker's version.",
            )
        return found


def _records(now: Description, found: Mapping[Partition, ProducerState | None]) -> int:
    return sum(p.last_sequence + 1 for p in found.values() if p and p.epoch == now.epoch)
