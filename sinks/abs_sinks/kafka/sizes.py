"""Which records are too large: for the client as they are, for a topic as the batch that is stored.

The client's ``message.max.bytes`` (Java: ``max.request.size``) limits a record before compression, a
topic's ``max.message.bytes`` the batch that a broker stores. So a record above the topic's limit is
taken where a batch of it alone is small enough once it is compressed: by the producer, and by the
broker, which compresses anew where the topic's ``compression.type`` names another codec.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from abs_clients.kafka.settings import Settings
from abs_clients.kafka.topics import TopicFacts
from abs_sinks.kafka.columnar.choice import compression_of
from abs_sinks.kafka.columnar.compression import Compression
from abs_sinks.kafka.columnar.recordbatch import HEADER_BYTES, encoded
from abs_sinks.kafka.headers import encoded_headers
from abs_sinks.kafka.records import RECORD_OVERHEAD, Records, most_bytes, sizes_of, sliced

_LEVELS = {"gzip": 6, "zstd": 3}
"""What librdkafka and brokers take where no level is given; Arrow takes others."""

_DIFFERENCE = 1.02
"""How much more another library's codec may make of the same bytes than Arrow's."""


@dataclass(frozen=True, slots=True)
class TooLarge:
    """Records that cannot be sent: which, why (the end of a sentence), and the remedy."""

    rows: pa.BooleanArray
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Sizes:
    """Judges records by their size.

    Args:
        settings: of the client.
        columnar: whether the columnar producer sends them; else librdkafka does.
        more_bytes: added to each record.
    """

    settings: Settings
    columnar: bool
    more_bytes: int = 0

    def too_large(
        self, records: Records, topic: TopicFacts, among: pa.BooleanArray | None = None
    ) -> TooLarge | None:
        """The records that are too large, for one reason; None if all can be sent.

        A record above the topic's limit is compressed here, and again when it is sent.

        Args:
            among: true for those that go to this topic; None: all do.
        """
        client = self.settings.message_max_bytes - RECORD_OVERHEAD - self.more_bytes
        limit = (topic.max_message_bytes or self.settings.message_max_bytes) - self.more_bytes
        plain = min(client, limit - RECORD_OVERHEAD)
        most_here = most_bytes(records)
        if most_here is not None and most_here <= plain:
            return None  # of small records that is enough to know
        size = np.array(sizes_of(records))
        if among is not None:
            size[~np.array(among)] = 0
        if (size > client).any():
            why = "are too large for kafka.message.max.bytes, which counts them before compression"
            remedy = "raise it, and max.message.bytes of the topic, or shrink them"
            return _above(size, client, why, remedy)
        codecs, why = self.codecs(topic), f"are too large for topic {topic.name}"
        if codecs:
            for row in np.flatnonzero(size > plain):
                size[row] = max(_stored(sliced(records, int(row), 1), codec) for codec in codecs)
            plain, why = limit, f"{why} as compressed batches"
        remedy = "raise max.message.bytes of the topic and kafka.message.max.bytes, or shrink them"
        return _above(size, plain, why, remedy)

    def codecs(self, topic: TopicFacts) -> list[Codec]:
        """How a record is compressed when it is sent, and stored; none where that is not always so."""
        try:
            sent = compression_of(self.settings)
        except ValueError:  # a level that librdkafka corrects
            sent = Compression(self.settings.get("compression.type") or "none")
        codecs = [Codec(sent) if self.columnar else _of_others(sent.name, sent.level)]
        if topic.compression not in ("producer", sent.name):
            codecs.append(_of_others(topic.compression))
        return [] if any(codec.compression.name == "none" for codec in codecs) else codecs


@dataclass(frozen=True, slots=True)
class Codec:
    """A compression, and how much larger its result may be than Arrow's."""

    compression: Compression
    factor: float = 1.0


def _of_others(name: str, level: int | None = None) -> Codec:
    """A codec of librdkafka or of a broker, by its name in their settings."""
    name = "none" if name == "uncompressed" else name
    return Codec(Compression(name, _LEVELS.get(name) if level is None else level), _DIFFERENCE)


def _stored(record: Records, codec: Codec) -> int:
    """The size of a batch of this record alone, compressed."""
    plain = encoded(
        record.keys, record.values, np.zeros(1, np.int64), encoded_headers(record.headers)
    )
    return HEADER_BYTES + int(len(codec.compression(plain)[1]) * codec.factor)


def _above(size: Any, limit: int, why: str, remedy: str) -> TooLarge | None:
    large = size > limit
    if not large.any():
        return None
    return TooLarge(pa.array(large), f"{why}: {size[large].max()} bytes of {limit}", remedy)
