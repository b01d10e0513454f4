"""Files in a bucket. Every read requires the pinned ETag, so no reader sees mixed contents."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from abs_clients.hidden import FOLDER_MARKERS
from abs_clients.s3.objects import Head, Listed, Objects
from abs_clients.s3.server import Bucket
from abs_core.errors import RefusedError, UnavailableError
from abs_core.patience import DEFAULT_PATIENCE
from abs_sources.files.model import Found, OpenFile, Pin, changed, gone
from abs_sources.files.pattern import Pattern

_SLASHES = re.compile("/+")
"""A glob matches a key as if empty folder names were not there, as Hadoop does."""


@dataclass(frozen=True, slots=True)
class S3Store:
    """Objects below a prefix of a bucket; ``pattern.root`` is the prefix.

    Args:
        exists: an error where there is nothing at all: for a read that awaits no first file.
    """

    bucket: Bucket
    pattern: Pattern
    exists: bool = False

    def find(self) -> list[Found]:
        found = list(self._list(self._folder))
        if not found and self.pattern.root and not self.pattern.levels:
            found = [f for f in self._list(self.pattern.root) if f.pin.path == ""]
        if not found and self.exists:
            raise RefusedError(
                f"There is nothing below s3://{self.bucket.name}/{self._folder}.",
                remedy="correct the option path.",
            )
        return [f for f in found if self.pattern.wants(_SLASHES.sub("/", f.pin.path).lstrip("/"))]

    def open(self, pin: Pin) -> OpenFile:
        raw = _Ranges(Objects(self.bucket), self._key(pin.path), pin, self.name(pin.path))
        raw.look()
        return _S3File(raw)

    def name(self, path: str) -> str:
        return f"s3://{self.bucket.name}/{self._key(path)}"

    @property
    def _folder(self) -> str:
        return f"{self.pattern.root}/" if self.pattern.root else ""

    def _key(self, path: str) -> str:
        return f"{self._folder}{path}" if path else self.pattern.root

    def _list(self, prefix: str) -> Iterator[Found]:
        for listed in Objects(self.bucket).list(prefix):
            # Kept as listed: ``a//b`` and ``a/b`` are two objects.
            if not listed.key.endswith(FOLDER_MARKERS):
                yield _found(listed.key[len(self._folder) :], listed)


class _S3File:
    def __init__(self, raw: _Ranges) -> None:
        self.content = pa.PythonFile(raw, mode="r")

    def check(self) -> None:
        """Each read has required the pinned content."""

    def close(self) -> None:
        self.content.close()


class _Ranges(io.RawIOBase):
    """A file that reads by ranged GETs with ``If-Match``."""

    def __init__(self, objects: Objects, key: str, pin: Pin, name: str) -> None:
        super().__init__()
        self._objects = objects
        self._key = key
        self._pin = pin
        self._name = name
        self._at = 0

    def look(self) -> None:
        """Send a HEAD, so that an empty file is checked, too."""
        head = self._head()
        if head.etag != self._pin.stamp or head.size != self._pin.size:
            raise changed(self._name, self._pin.stamp, head.etag)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._pin.size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._pin.size if size is None or size < 0 else min(self._at + size, self._pin.size)
        if self._at >= end:
            return b""
        content = self._objects.get_range(self._key, self._at, end, self._pin.stamp)
        if content is None:
            raise changed(self._name, self._pin.stamp, self._head().etag)
        self._at += len(content)
        return content

    def _head(self) -> Head:
        head = self._objects.head(self._key)
        if head is None:
            raise gone(self._name)
        return head


def _found(path: str, listed: Listed) -> Found:
    modified = int(listed.modified.timestamp() * 1_000_000_000)
    return Found(Pin(path, listed.size, listed.etag), modified)


@dataclass(frozen=True)
class WriteOnceBucket:
    """One object per cell, put with ``If-None-Match: *``; ``SeenLog`` checks the server's support."""

    bucket: Bucket
    prefix: str

    @property
    def place(self) -> str:
        return f"s3://{self.bucket.name}/{self.prefix}"

    def names(self) -> set[str]:
        folder = f"{self.prefix}/"
        return {entry.key[len(folder) :] for entry in Objects(self.bucket).list(folder)}

    def get(self, name: str) -> bytes | None:
        content = Objects(self.bucket).get(self._key(name))
        return None if content is None else content.data

    def put_new(self, name: str, content: bytes) -> bool:
        patience = replace(DEFAULT_PATIENCE, system=f"S3 at {self.place}")
        return patience.retry(lambda: self._put(name, content))

    def delete(self, names: Iterable[str]) -> None:
        Objects(self.bucket).delete(self._key(name) for name in names)

    def _put(self, name: str, content: bytes) -> bool:
        """One request. It can be repeated safely: the content is this writer's alone."""
        lost = None
        try:
            if Objects(self.bucket).put_if(self._key(name), content, None) is not None:
                return True
        except UnavailableError as error:
            lost = error
        # It can be there by this request, or by an earlier one that arrived late.
        there = self.get(name)
        if there is None:
            raise UnavailableError(
                f"S3: it is unknown whether {self.place}/{name} was written."
            ) from lost
        return there == content

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}"
