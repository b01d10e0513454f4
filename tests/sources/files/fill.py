"""Fills the place that a file source reads, local or on S3, for the checks and for the tests."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import boto3
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from abs_core.source import Limit, Source
from abs_services import S3Service
from abs_sources.files import FileOptions, FileSource
from abs_testing.harness import Record

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string())])
TEXT = pa.schema([("value", pa.string())])


class Disk(Protocol):
    """A place for files, seen from outside."""

    @property
    def given(self) -> Mapping[str, str]:
        """Options of a source on it."""
        ...

    def put(self, name: str, content: bytes) -> None: ...

    def delete(self, name: str) -> None: ...

    def names(self) -> list[str]: ...

    def get(self, name: str) -> bytes: ...


class Folder:
    """A local folder; options for a source on it are in ``given``."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "input"
        self.path.mkdir(parents=True, exist_ok=True)
        self.given = {"path": str(self.path), "log": str(folder / "log")}

    def put(self, name: str, content: bytes) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}")
        hidden.write_bytes(content)
        hidden.rename(path)

    def delete(self, name: str) -> None:
        (self.path / name).unlink()

    def names(self) -> list[str]:
        return sorted(str(p.relative_to(self.path)) for p in self.path.rglob("*") if p.is_file())

    def get(self, name: str) -> bytes:
        return (self.path / name).read_bytes()


class Bucket:
    """A prefix of a bucket. The credentials are where boto3's chain looks for them."""

    def __init__(self, s3: S3Service, prefix: str) -> None:
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=s3.endpoint,
            region_name=s3.region,
            aws_access_key_id=s3.access_key,
            aws_secret_access_key=s3.secret_key,
        )
        self._bucket, self._prefix = s3.bucket, f"{prefix}/input"
        base = f"s3://{s3.bucket}/{prefix}"
        self.given = {
            "path": f"{base}/input",
            "log": f"{base}/log",
            "endpoint": s3.endpoint,
            "region": s3.region,
        }

    def put(self, name: str, content: bytes) -> None:
        key = f"{self._prefix}/{name}"
        self._client.put_object(Bucket=self._bucket, Key=key, Body=content)

    def delete(self, name: str) -> None:
        self._client.delete_object(Bucket=self._bucket, Key=f"{self._prefix}/{name}")

    def names(self) -> list[str]:
        found = self._client.list_objects_v2(Bucket=self._bucket, Prefix=f"{self._prefix}/")
        return [item["Key"][len(self._prefix) + 1 :] for item in found.get("Contents", ())]

    def get(self, name: str) -> bytes:
        answer = self._client.get_object(Bucket=self._bucket, Key=f"{self._prefix}/{name}")
        content: bytes = answer["Body"].read()
        return content


def credentials(s3: S3Service) -> dict[str, str]:
    """Environment variables in which boto3's chain finds this server's."""
    return {"AWS_ACCESS_KEY_ID": s3.access_key, "AWS_SECRET_ACCESS_KEY": s3.secret_key}


def table_of(numbers: Sequence[int]) -> pa.Table:
    return pa.table([pa.array(numbers), pa.array([f"word {n}" for n in numbers])], schema=SCHEMA)


def packed(numbers: Sequence[int], form: str, **how: Any) -> bytes:
    """A file of these rows in a format."""
    table = table_of(numbers)
    out = io.BytesIO()
    if form == "parquet":
        pq.write_table(table, out, **{"row_group_size": 8, **how})
    elif form == "arrow":
        with pa.ipc.new_file(out, SCHEMA) as writer:
            writer.write_table(table, max_chunksize=8)
    elif form == "csv":
        pyarrow.csv.write_csv(table, out, pyarrow.csv.WriteOptions(include_header=False))
    elif form == "json":
        out.write(b"".join(b'{"id": %d, "word": "word %d"}\n' % (n, n) for n in numbers))
    else:
        out.write(b"".join(b"word %d\n" % n for n in numbers))
    return out.getvalue()


def unpacked(batch: pa.RecordBatch) -> list[Record]:
    return [tuple(row.values()) for row in batch.to_pylist()]


class FilesHarness:
    """A place that a file source reads."""

    limits: Sequence[tuple[Limit, int]] = (
        (Limit(files=1), 10),
        (Limit(bytes=1), 10),
        (Limit(files=2), 20),
    )

    def __init__(self, disk: Disk, form: str) -> None:
        self.disk = disk
        self.form = form
        self._numbers = itertools.count()
        self._files = itertools.count()

    @property
    def schema(self) -> pa.Schema:
        return TEXT if self.form == "text" else SCHEMA

    @property
    def options(self) -> FileOptions:
        given = {**self.disk.given, "fileformat": self.form, "batchsize": "5"}
        options = FileOptions.parse(given, streaming=True)
        return replace(options, chunk=50, partition_bytes=100, poll_seconds=0.1)

    @property
    def damages(self) -> Mapping[str, Callable[[], None]]:
        return {
            "a file is deleted": lambda: self.disk.delete(self.disk.names()[0]),
            "a file has other rows": self._other_rows,
            "a file has grown": self._grown,
            "a file was written again": self._again,
        }

    def new_source(self) -> Source:
        return FileSource(self.options, self.schema)

    def add(self, rows: int) -> Sequence[Record]:
        """In files of ten rows, or of half of them where that would be one file only."""
        numbers = list(itertools.islice(self._numbers, rows))
        step = min(10, max(1, rows // 2))
        added: list[Record] = []
        for begin in range(0, rows, step):
            part = numbers[begin : begin + step]
            self.disk.put(self._name(part), packed(part, self.form))
            added += [(f"word {n}",) if self.form == "text" else (n, f"word {n}") for n in part]
        return added

    def records(self, batch: pa.RecordBatch) -> Sequence[Record]:
        return unpacked(batch)

    def _name(self, numbers: Sequence[int]) -> str:
        """The name of the next file, which has these rows."""
        return f"{next(self._files):04d}.{self.form}"

    def _other_rows(self) -> None:
        self.disk.put(self.disk.names()[0], packed([-1, -2], self.form))

    def _grown(self) -> None:
        name = self.disk.names()[1]
        self.disk.put(name, self.disk.get(name) + packed([-1], self.form))

    def _again(self) -> None:
        name = self.disk.names()[0]
        content = self.disk.get(name)
        changed = content.replace(b"word 0", b"word x").replace(b"word 1", b"word y")
        self.disk.put(name, changed)


class FoldersHarness(FilesHarness):
    """All columns are in names of folders, and none is read from the files, which have a row each."""

    def add(self, rows: int) -> Sequence[Record]:
        return [row for _ in range(rows) for row in super(FoldersHarness, self).add(1)]

    def _name(self, numbers: Sequence[int]) -> str:
        [number] = numbers
        return f"id={number}/word=word {number}/{super()._name(numbers)}"
