"""The write-ahead log: what tasks make durable outside their target, until their epoch is committed.

A segment is one task attempt's share of one epoch: an Arrow IPC stream and a seal (``format``). A
store keeps segments under the names of their handles (``contracts``); a folder is one (``folder``),
the S3 sink brings another. Nothing here decides: a segment is data only once a decision names it.
"""

from abs_core.wal.contracts import Entry, SegmentFile, SegmentStore
from abs_core.wal.folder import FolderSegments
from abs_core.wal.format import Seal, SegmentWriter, read_segment, seal_of, verify

__all__ = [
    "Entry",
    "FolderSegments",
    "Seal",
    "SegmentFile",
    "SegmentStore",
    "SegmentWriter",
    "read_segment",
    "seal_of",
    "verify",
]
