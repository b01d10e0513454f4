"""Protocol wal: where a job's segments are kept, and how they become records."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa
from confluent_kafka import Producer

from abs_core.errors import CorruptionError, NotPreparedError, OptionError, RefusedError
from abs_core.model import Committable
from abs_core.wal import SegmentStore, read_segment
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import plan_columns, records_of
from abs_sinks.kafka.register_producer import Rows
from abs_sinks.kafka.sending import Failures, Sender
from abs_sinks.wal import segment_store

ROOM = 0.8
"""The part of ``transaction.timeout.ms`` that the records of an epoch may take to send."""


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

    def send(producer: Producer, failures: Failures) -> None:
        timeout = options.kafka.transaction_timeout_ms / 1000
        deadline = time.monotonic() + ROOM * timeout
        sender = Sender(producer, failures, options.topic, ROOM * timeout)
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

    return send


def columns_kept(schema: pa.Schema, options: KafkaOptions) -> list[str]:
    """The input's columns that go into records; the others are not written."""
    columns = plan_columns(schema, options.topic)
    return [name for name in schema.names if name not in columns.left_out]


def is_whole(store: SegmentStore, committable: Committable) -> bool:
    """Whether a segment is there, every byte of it.

    Raises:
        CorruptionError: it is there, and damaged.
    """
    try:
        for _ in read_segment(store, committable):
            return True  # all of it was checked before its first batch
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
