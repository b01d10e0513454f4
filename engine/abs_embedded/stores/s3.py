"""A snapshot store of the embedded runtime in S3: blobs as objects, records put if absent.

``{path}/blobs/{key}`` and ``{path}/complete/{checkpoint}.record``. A record's ``If-None-Match: *``
makes a decision happen once; the server must honour it on put (Amazon S3 does; the sink's preflight
checks). After a lost reply the put is repeated: the same record is no conflict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from abs_clients.s3.location import Location
from abs_clients.s3.objects import Objects
from abs_clients.s3.server import Bucket, Server
from abs_embedded.state.contracts import BlobRef
from abs_embedded.state.local_store import (
    another_record,
    check_key,
    checked,
    digest_of,
    sealed,
    unsealed,
)

_RECORD = re.compile(r"(\d{1,18})\.record")


class S3SnapshotStore:
    """As durable as the bucket. See ``abs_embedded.state.contracts.SnapshotStore``.

    Args:
        folder: the store's own, ``Location.parse("s3://bucket/prefix")``; no lifecycle rule may
            delete objects in it.
        sse: server-side encryption; None: the bucket's default.
        ssekmskeyid: key for ``aws:kms``.
    """

    def __init__(
        self,
        server: Server,
        folder: Location,
        *,
        sse: str | None = None,
        ssekmskeyid: str | None = None,
    ) -> None:
        self._objects = Objects(Bucket(server, folder.bucket, sse, ssekmskeyid))
        self._blobs = f"{folder.key('blobs')}/"
        self._records = f"{folder.key('complete')}/"

    def put(self, key: str, content: bytes) -> BlobRef:
        self._objects.put(self._blobs + check_key(key), content)
        return BlobRef(key, len(content), digest_of(content))

    def get(self, ref: BlobRef) -> bytes:
        body = self._objects.get(self._blobs + check_key(ref.key), ref.size)
        return checked(ref, None if body is None else body.data)

    def delete(self, keys: Iterable[str]) -> None:
        self._objects.delete([self._blobs + check_key(key) for key in keys])

    def blobs(self) -> Sequence[str]:
        return sorted(entry.key[len(self._blobs) :] for entry in self._objects.list(self._blobs))

    def complete(self, checkpoint: int, record: bytes, blobs: Iterable[BlobRef]) -> None:
        refs = list(blobs)
        sizes = dict[str, int]()
        for number in sorted({ref.key.partition("/")[0] for ref in refs}):
            prefix = f"{self._blobs}{number}/"
            sizes |= {entry.key: entry.size for entry in self._objects.list(prefix)}
        for ref in refs:
            if sizes.get(self._blobs + ref.key) != ref.size:
                self.get(ref)
        key = self._record(checkpoint)
        if self._objects.put_if(key, sealed(record), None) is None:
            there = self._objects.get(key)
            if there is None or there.data != sealed(record):
                raise another_record(checkpoint)

    def completed(self) -> Sequence[int]:
        names = (entry.key[len(self._records) :] for entry in self._objects.list(self._records))
        return sorted(int(name[1]) for name in map(_RECORD.fullmatch, names) if name)

    def record(self, checkpoint: int) -> bytes:
        body = self._objects.get(self._record(checkpoint))
        return unsealed(checkpoint, None if body is None else body.data)

    def retire(self, checkpoint: int) -> None:
        self._objects.delete([self._record(checkpoint)])

    def is_private(self) -> bool:
        """False: a bucket does not show who else may write to it."""
        return False

    def _record(self, checkpoint: int) -> str:
        return f"{self._records}{checkpoint}.record"
