"""What tasks write: formats, folders, parts; read back by the readers that people use."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from abs_clients.s3.location import OURS
from abs_clients.s3.objects import Objects
from abs_core.errors import SchemaError, TargetError
from abs_core.model import HandleName, JobState, Outcome
from abs_services import S3Service
from abs_sinks.s3 import S3Options, S3Register, S3Sink
from abs_sinks.s3.taskfiles import TaskFiles
from abs_sinks.s3.twophase import TwoPhaseCommitter, committable
from abs_sinks.s3.uploads import Uploads

pytestmark = pytest.mark.services

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
TABLE = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "text": ['say "hi", twice\n', "", None],
        "at": pa.array([MOMENT, None, MOMENT], pa.timestamp("us", "UTC")),
        "amount": pa.array([1.5, -0.25, None], pa.float64()),
    }
)
HANDLE = HandleName("0123456789abcdef", "job", 1, 2, 3, "ab")
STATE = JobState("0123456789abcdef", "job", "target", "lineage", 1, "run")


class Written:
    """Writes tables as one task does, commits, and reads."""

    def __init__(self, options: S3Options) -> None:
        self.options = options
        self.objects = Objects(options.bucket)

    def write(self, *tables: pa.Table) -> list[str]:
        """The keys of the files that the tables became."""
        files = TaskFiles(self.options, tables[0].schema, HANDLE)
        for table in tables:
            for batch in table.to_batches():
                files.write(batch)
        made = committable(HANDLE, files.rows, files.finish())
        committer = TwoPhaseCommitter(self.options)
        assert committer.inspect([made])[HANDLE].outcome is Outcome.PREPARED
        assert self.keys() == []
        assert committer.commit([made]) == {HANDLE: Outcome.COMMITTED}
        assert list(Uploads(self.options).list(self.options.path.folder)) == []
        return self.keys()

    def keys(self) -> list[str]:
        ours = self.options.path.key(OURS, "")
        found = self.objects.list(self.options.path.folder)
        return [listed.key for listed in found if not listed.key.startswith(ours)]

    def content(self, key: str) -> bytes:
        body = self.objects.get(key)
        assert body is not None
        return body.data

    def tables(self) -> Iterator[pa.Table]:
        for key in self.keys():
            yield pq.read_table(pa.BufferReader(self.content(key)))


@pytest.fixture
def options(given: Mapping[str, str], store: S3Service, prefix: str) -> Mapping[str, str]:
    return {**given, "path": f"s3://{store.bucket}/{prefix}"}


def written(options: Mapping[str, str], **more: str) -> Written:
    return Written(S3Options.parse({**options, **more}))


@pytest.mark.parametrize("compression", ["snappy", "zstd", "none"])
def test_parquet_reads_back(options: Mapping[str, str], compression: str) -> None:
    folder = written(options, compression=compression)
    (key,) = folder.write(TABLE)
    assert key.endswith(".parquet")
    assert pq.read_table(pa.BufferReader(folder.content(key))).equals(TABLE)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_arrow_reads_back(options: Mapping[str, str], compression: str) -> None:
    folder = written(options, fileformat="arrow", compression=compression)
    (key,) = folder.write(TABLE, TABLE)
    with pa.ipc.open_file(folder.content(key)) as file:
        assert file.read_all().equals(pa.concat_tables([TABLE, TABLE]).combine_chunks())


@pytest.mark.parametrize(("compression", "ending"), [("none", ".json"), ("gzip", ".json.gz")])
def test_json_has_one_object_a_line(
    options: Mapping[str, str], compression: str, ending: str
) -> None:
    folder = written(options, fileformat="json", compression=compression)
    nested = TABLE.append_column("tags", pa.array([["a", "b"], [], None]))
    (key,) = folder.write(nested, nested.slice(0, 0), nested.slice(1, 1))
    assert key.endswith(ending)
    stream = pa.input_stream(
        pa.BufferReader(folder.content(key)), compression="gzip" if ending.endswith("gz") else None
    )
    lines = [json.loads(line) for line in stream.read().decode().splitlines()]
    assert lines[0] == {
        "id": 1,
        "text": 'say "hi", twice\n',
        "at": "2026-01-02T03:04:05.678901Z",
        "amount": 1.5,
        "tags": ["a", "b"],
    }
    assert lines[1] == lines[3] == {"id": 2, "text": "", "at": None, "amount": -0.25, "tags": []}
    assert lines[2]["text"] is None


def test_csv_tells_null_from_empty_text(options: Mapping[str, str]) -> None:
    folder = written(options, fileformat="csv")
    (key,) = folder.write(TABLE)
    text = folder.content(key).decode()
    assert text.startswith('"id","text","at","amount"\n')
    assert '\n2,"",,-0.25\n' in text
    read = pcsv.read_csv(
        pa.BufferReader(text.encode()),
        parse_options=pcsv.ParseOptions(newlines_in_values=True),
        convert_options=pcsv.ConvertOptions(
            strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )
    assert read["text"].to_pylist() == TABLE["text"].to_pylist()


def test_a_format_that_cannot_hold_a_column_is_refused_before_anything_is_written(
    options: Mapping[str, str],
) -> None:
    nested = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])
    with pytest.raises(SchemaError, match="tags"):
        S3Sink(S3Options.parse({**options, "fileformat": "csv"}), nested)
    twice = pa.schema([("id", pa.int64()), ("id", pa.string())])
    with pytest.raises(SchemaError, match="one name"):
        S3Sink(S3Options.parse(options), twice)


def test_more_folders_than_open_files_lose_no_row(options: Mapping[str, str]) -> None:
    folder = written(options, partitionby="k", maxopenfiles="3")
    tables = [
        pa.table({"id": range(n, n + 500), "k": [(i * 7) % 101 for i in range(n, n + 500)]})
        for n in range(0, 2000, 500)
    ]
    keys = folder.write(*tables)
    assert len(keys) == 101, "each folder has one file"
    found: list[tuple[int, int]] = []
    for key in keys:
        k = int(key.split("/")[-2].removeprefix("k="))
        ids = pq.read_table(pa.BufferReader(folder.content(key)))["id"].to_pylist()
        assert ids == sorted(ids), "the order of rows within a folder is kept"
        found += [(n, k) for n in ids]
    assert sorted(found) == [(n, (n * 7) % 101) for n in range(2000)]


def test_a_file_of_many_parts_reads_back(options: Mapping[str, str]) -> None:
    folder = written(options, partsize="5m", rowgroupsize="2m", compression="none")
    big = pa.table({"id": range(1_700_000), "half": pa.array(range(1_700_000), pa.float64())})
    folder.write(*[big.slice(at, 100_000) for at in range(0, 1_700_000, 100_000)])
    (table,) = folder.tables()
    assert table.equals(big)
    (key,) = folder.keys()
    head = folder.objects.head(key)
    assert head is not None
    assert head.etag.strip('"').endswith("-6"), "26 MiB in parts of 5 MiB"


def test_a_large_task_begins_another_file(options: Mapping[str, str]) -> None:
    folder = written(options, maxfilesize="1m", rowgroupsize="1m", compression="none")
    big = pa.table({"id": range(600_000)})
    keys = folder.write(*[big.slice(at, 50_000) for at in range(0, 600_000, 50_000)])
    assert len(keys) > 2
    assert pa.concat_tables(folder.tables()).sort_by("id").equals(big)


def test_readers_that_list_see_what_is_committed_and_nothing_else(
    options: Mapping[str, str], store: S3Service, tmp_path: Path
) -> None:
    folder = written(options, partitionby="k")
    table = TABLE.append_column("k", pa.array(["a", "b", "a"]))
    folder.write(table)
    pending = TaskFiles(folder.options, table.schema, HANDLE)
    pending.write(table.to_batches()[0])
    pending.finish()
    S3Register(folder.options).compare_and_set("job", None, STATE)
    path = f"{folder.options.path.bucket}/{folder.options.path.prefix}"
    system = fs.S3FileSystem(
        access_key=store.access_key,
        secret_key=store.secret_key,
        endpoint_override=store.endpoint,
        region=store.region,
    )
    assert sorted(ds.dataset(path, filesystem=system).to_table()["id"].to_pylist()) == [1, 2, 3]
    assert sorted(pd.read_parquet(path, filesystem=system)["id"]) == [1, 2, 3]
    # DuckDB reads S3 by an extension that must be downloaded: here it globs a copy of all objects.
    fs.copy_files(path, str(tmp_path), source_filesystem=system)
    assert len(list(tmp_path.rglob("*"))) > 3
    found = duckdb.connect().execute(
        f"select id, k from read_parquet('{tmp_path}/**/*.parquet') order by id"
    )
    assert found.fetchall() == [(1, "a"), (2, "b"), (3, "a")]


def test_a_server_that_refuses_a_part_fails_the_task_with_its_error_and_leaves_nothing(
    options: Mapping[str, str],
) -> None:
    folder = written(options, partsize="5m", rowgroupsize="1m", compression="none")
    files = TaskFiles(folder.options, pa.schema([("id", pa.int64())]), HANDLE)
    batch = pa.record_batch({"id": range(100_000)})
    files.write(batch)
    (found,) = Uploads(folder.options).list(folder.options.path.folder)
    Uploads(folder.options).abort(found.key, found.upload_id)  # as a newer run's sweep does
    with pytest.raises(TargetError, match="NoSuchUpload"):
        deque(map(files.write, [batch] * 100), maxlen=0)
    files.discard()
    assert list(Uploads(folder.options).list(folder.options.path.folder)) == []
    assert folder.keys() == []
