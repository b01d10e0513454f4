"""The write-ahead log: tasks' rows, durable outside their target until their epoch is committed.

A segment is one task attempt's share of one epoch: an Arrow IPC stream and a seal (``format``). A store
keeps segments under the names of their handles (``contracts``): in a folder (``folder``), or in S3 (the
S3 sink). A segment's rows count only once a decision names it.
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
