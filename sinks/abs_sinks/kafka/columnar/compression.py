"""The codecs of record batches, by Arrow's libraries.

Source: the manual's chapter "Record Batch" (attributes), and "LZ4 Frame Format Description" 1.6: Kafka
reads frames of independent blocks only, and Arrow's own frames link them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Bits of a batch's attributes."""

_FRAME = bytes.fromhex("04224d18 60 40 82")
"""Magic number; version 1, independent blocks, no checksums; blocks of 64 KiB; this header's check."""
_BLOCK = 1 << 16
_STORED = 1 << 31
_END = bytes(4)


@dataclass(frozen=True, slots=True)
class Compression:
    """How the records of a batch are compressed.

    Args:
        name: one of ``CODECS``.
        level: the codec's own; None: its default. ``snappy`` and ``lz4`` ignore it.
    """

    name: str = "none"
    level: int | None = None

    @classmethod
    def parse(cls, name: str | None, level: str | None) -> Compression:
        """From librdkafka's compression.type and compression.level; -1 is the default.

        Raises ValueError for an unknown codec or level.
        """
        codec = (name or "none").lower()
        if codec not in CODECS:
            raise ValueError(f"it is none of {', '.join(CODECS)}")
        number = -1 if level is None else int(level)
        made = cls(codec, None if number == -1 or codec not in ("gzip", "zstd") else number)
        try:
            made(memoryview(b"tried"))
        except (OSError, pa.ArrowInvalid) as error:
            raise ValueError(f"{codec} has no level {number}") from error
        return made

    def __call__(self, records: memoryview) -> tuple[int, bytes | memoryview]:
        """The codec's bits and the records, uncompressed if they would not get smaller."""
        if self.name == "none":
            return 0, records
        if self.name == "lz4":
            compressed = b"".join(_lz4(records))
        else:
            codec = pa.Codec(self.name, compression_level=self.level)
            compressed = codec.compress(records, asbytes=True)
        if len(compressed) >= len(records):
            return 0, records
        return CODECS[self.name], compressed


NONE = Compression()


def _lz4(records: memoryview) -> Iterator[bytes | memoryview]:
    codec = pa.Codec("lz4_raw")
    yield _FRAME
    for start in range(0, len(records), _BLOCK):
        block = records[start : start + _BLOCK]
        made: bytes = codec.compress(block, asbytes=True)
        if len(made) < len(block):
            yield len(made).to_bytes(4, "little")
            yield made
        else:
            yield (len(block) | _STORED).to_bytes(4, "little")
            yield block
    yield _END
