"""Files in a bucket. Every read asks for the pinned ETag, so no reader sees two contents mixed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from abs_sources.files.bucket import NotThereError, OtherContentError, Server, client, mapped
from abs_sources.files.faults import changed, gone
from abs_sources.files.model import Found, OpenFile, Pin
from abs_sources.files.pattern import Pattern


@dataclass(frozen=True, slots=True)
class S3Store:
    """Objects below a prefix of a bucket; ``pattern.root`` is the prefix."""

    server: Server
    bucket: str
    pattern: Pattern

    def find(self) -> list[Found]:
        root = self.pattern.root
        prefix = f"{root}/" if root else ""
        found = list(self._list(prefix))
        if not found and root and not self.pattern.levels:
            found = [f for f in self._list(root) if f.pin.path == ""]
        return [f for f in found if self.pattern.wants(f.pin.path)]

    def open(self, pin: Pin) -> OpenFile:
        name = self.name(pin.path)
        raw = _Ranges(client(self.server), self.bucket, self._key(pin.path), pin, name)
        raw.look()
        return _S3File(raw)

    def name(self, path: str) -> str:
        return f"s3://{self.bucket}/{self._key(path)}"

    def _key(self, path: str) -> str:
        return "/".join(part for part in (self.pattern.root, path) if part)

    def _list(self, prefix: str) -> Iterator[Found]:
        with mapped(f"listing s3://{self.bucket}/{prefix}"):
            pages = client(self.server).get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.bucket, Prefix=prefix):
                for item in page.get("Contents", ()):
                    path = item["Key"][len(self.pattern.root) :].lstrip("/")
                    if not item["Key"].endswith("/"):  # consoles make such objects for folders
                        yield _found(path, item)


class _S3File:
    def __init__(self, raw: _Ranges) -> None:
        self.content = pa.PythonFile(raw, mode="r")

    def check(self) -> None:
        """Nothing: each read has asked for the pinned content."""

    def close(self) -> None:
        self.content.close()


class _Ranges(io.RawIOBase):
    """A file of which every read is one ranged GET with ``If-Match``."""

    def __init__(self, s3: Any, bucket: str, key: str, pin: Pin, name: str) -> None:
        super().__init__()
        self._s3 = s3
        self._object = {"Bucket": bucket, "Key": key}
        self._pin = pin
        self._name = name
        self._at = 0

    def look(self) -> None:
        """One HEAD: an empty file, too, must be the pinned one."""
        with self._told("looking at"):
            head = self._s3.head_object(**self._object)
        if head["ETag"] != self._pin.stamp or head["ContentLength"] != self._pin.size:
            raise changed(self._name, self._pin.stamp, head["ETag"])

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
        with self._told("reading"):
            answer = self._s3.get_object(
                **self._object, Range=f"bytes={self._at}-{end - 1}", IfMatch=self._pin.stamp
            )
            content: bytes = answer["Body"].read()
        self._at += len(content)
        return content

    @contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        try:
            with mapped(f"{doing} {self._name}"):
                yield
        except NotThereError as error:
            raise gone(self._name) from error
        except OtherContentError as error:
            raise changed(self._name, f"ETag {self._pin.stamp}", "another") from error


def _found(path: str, item: Any) -> Found:
    modified = int(item["LastModified"].timestamp() * 1_000_000_000)
    return Found(Pin(path, item["Size"], item["ETag"]), modified)
