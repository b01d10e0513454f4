"""Record batches as any client may write them: header keys of any bytes, any times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kafka.record.default_records import DefaultRecordBatchBuilder

from abs_clients.kafka.settings import Settings
from abs_sinks.kafka.columnar.outbox import Batch
from abs_sinks.kafka.columnar.recordbatch import ProducerIdentity
from abs_sinks.kafka.columnar.transport import Transport


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record; times are milliseconds since 1970."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    time: int = 1_700_000_000_000


class _Key(str):
    """A header's key that kafka-python encodes as these bytes."""

    raw: bytes

    @classmethod
    def of(cls, raw: bytes) -> _Key:
        made = cls("key")
        made.raw = raw
        return made

    def encode(self, *_: Any) -> bytes:
        return self.raw


def batch_bytes(records: Sequence[RawRecord], compression: int = 0) -> bytes:
    """One record batch (format 2), without a producer id."""
    builder = DefaultRecordBatchBuilder(2, compression, False, -1, -1, -1, 1 << 30)
    for offset, record in enumerate(records):
        headers = [(_Key.of(name), value) for name, value in record.headers]
        builder.append(offset, record.time, record.key, record.value, headers)
    return bytes(builder.build())


def append(settings: Settings, topic: str, partition: int, payload: bytes, count: int) -> None:
    """Have the broker append a batch.

    Raises:
        AssertionError: it refuses it.
    """
    transport = Transport(settings, ProducerIdentity(None, -1, -1), topic)
    (node,) = transport.leaders([partition], remembered=False).values()
    transport.send(node, [Batch(partition, 0, count, payload)])
    answer = transport.answer(30.0)
    assert answer is not None
    assert (answer.code, answer.error) == (0, None), answer
