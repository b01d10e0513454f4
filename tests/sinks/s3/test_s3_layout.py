"""Names of files and folders: read back exactly, and never another job's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_clients.s3.location import Location
from abs_core.errors import OptionError, RowError, SchemaError
from abs_core.model import HandleName, job_key
from abs_sinks.refusals import find_bad_rows
from abs_sinks.s3.layout import FileName, data_key, handle_of, lead
from abs_sinks.s3.options import check_partitioning
from abs_sinks.s3.partitions import NULL_FOLDER, Partitioning

REGISTER = "0123456789abcdef"
JOBS = ("a", "a.b", "a-b", "a%25b", "a@1", "..", "a-0123456789abcdef-1-2-3-ab-0", "a.parquet", "~")
HANDLE = HandleName(REGISTER, "job", 1, 2, 3, "ab")


@pytest.mark.parametrize("job", JOBS)
def test_a_name_reads_back(job: str) -> None:
    name = FileName(HandleName(REGISTER, job, 1, 42, 7, "00ff"), 3, "part-x", "json.gz")
    assert FileName.parse(str(name)) == name
    assert handle_of(f"some/folder=1/{name}") == name.handle
    assert ":" not in str(name)
    assert "%" not in str(name)


@given(st.text(min_size=1, max_size=12), st.integers(0, 99), st.sampled_from(["0", "ab", "f" * 24]))
def test_every_job_name_reads_back(job: str, number: int, attempt: str) -> None:
    try:
        key = job_key(job)
    except OptionError:
        return
    name = FileName(HandleName(REGISTER, key, number, number, number, attempt), number)
    assert FileName.parse(str(name)) == name


def test_names_of_different_jobs_differ_however_alike_they_are() -> None:
    names = {str(FileName(HandleName(REGISTER, job, 1, 2, 3, "ab"), 0)) for job in JOBS}
    assert len(names) == len(JOBS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "part",
        "part-0.parquet",
        f"x{FileName(HANDLE, 0)}.tmp-",
        f"{FileName(HANDLE, 0)}".replace("-1-", "-01-"),
        f"{FileName(HANDLE, 0)}".replace(REGISTER, REGISTER[1:]),
        f"{FileName(HANDLE, 0)}".replace(REGISTER, REGISTER.upper()),
        "part-00000-9e1b0c1e-7a5c-4a52-9d39-4e26c7fb2a1f-c000.snappy.parquet",
    ],
)
def test_what_only_looks_like_a_name_is_none(text: str) -> None:
    assert FileName.parse(text) is None


def test_a_template_names_epoch_partition_and_day() -> None:
    moment = datetime(2026, 3, 4, 23, 59, tzinfo=UTC)
    assert lead("x_{date}-{epoch}-{partition}", HANDLE, moment) == "x_2026-03-04-2-00003"


def test_a_key_that_is_too_long_is_refused_with_its_folder() -> None:
    with pytest.raises(RowError, match="1024"):
        data_key(Location("bucket", "p"), f"x={'ü' * 500}/", FileName(HANDLE, 0))


def test_rows_go_to_the_folders_of_their_values_in_their_order() -> None:
    batch = pa.record_batch(
        {
            "id": [1, 2, 3, 4, 5],
            "day": pa.array([date(2026, 1, 1), date(2026, 1, 2), None, date(2026, 1, 1), None]),
            "word": ["a/b", "x=y", "", "a/b", None],
        }
    )
    partitioning = Partitioning(batch.schema, ["day", "word"])
    found = {
        folder: partitioning.inside(rows).to_pydict() for folder, rows in partitioning.split(batch)
    }
    assert found == {
        "day=2026-01-01/word=a%2Fb/": {"id": [1, 4]},
        "day=2026-01-02/word=x%3Dy/": {"id": [2]},
        # NULL and the empty text share a folder, as in Spark and Hive.
        f"day={NULL_FOLDER}/word={NULL_FOLDER}/": {"id": [5]},
    } | {f"day={NULL_FOLDER}/word={NULL_FOLDER}/": {"id": found[_NULLS]["id"]}}
    assert partitioning.file_schema.names == ["id"]


_NULLS = f"day={NULL_FOLDER}/word={NULL_FOLDER}/"


def test_null_and_empty_text_share_a_folder_and_no_row_is_lost() -> None:
    batch = pa.record_batch({"id": [1, 2, 3], "word": ["", None, ""]})
    rows = [r.to_pydict()["id"] for _, r in Partitioning(batch.schema, ["word"]).split(batch)]
    assert sorted(n for ids in rows for n in ids) == [1, 2, 3]


@pytest.mark.parametrize(
    ("values", "folder"),
    [
        (pa.array([7], pa.int32()), "k=7/"),
        (pa.array([True]), "k=true/"),
        (pa.array([Decimal("1.50")]), "k=1.50/"),
        (
            pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            "k=2026-01-01T00%3A00%3A00Z/",  # with a Z, or Spark reads it in its session's zone
        ),
    ],
)
def test_values_are_written_as_spark_reads_them(values: pa.Array, folder: str) -> None:
    batch = pa.record_batch({"id": [1], "k": values})
    ((found, _),) = Partitioning(batch.schema, ["k"]).split(batch)
    assert found == folder


NO_FOLDERS = {
    "text": pa.array([b"a", b"\xff", b"a", None, b"\xff", b"b"], pa.binary()).view(pa.string()),
    "day": pa.array([0, 2**30, 0, None, 2**30, 1], pa.int32()).view(pa.date32()),
}


def _all(split: Callable[[pa.RecordBatch], Iterable[object]], rows: pa.RecordBatch) -> None:
    list(split(rows))


@pytest.mark.parametrize("kind", NO_FOLDERS)
def test_the_rows_whose_value_makes_no_folder_name_are_told(kind: str) -> None:
    batch = pa.record_batch({"id": range(6), "k": NO_FOLDERS[kind]})
    for columns in (["k"], ["k", "id"]):
        split = Partitioning(pa.schema([*batch.schema, ("v", pa.int8())]), columns).split
        bad = find_bad_rows(batch, partial(_all, split))
        assert (bad.which >= 0).tolist() == [False, True, False, False, True, False]
        assert [reason.column for reason in bad.reasons] == ["k"]


def test_columns_that_make_no_folder_name_are_refused() -> None:
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("l", pa.list_(pa.int64()))])
    for name in ("x", "l"):
        with pytest.raises(SchemaError, match="folder name"):
            Partitioning(schema, [name])
    with pytest.raises(OptionError, match="does not have"):
        check_partitioning(("nothing",), schema.names)
    with pytest.raises(OptionError, match="every column"):
        check_partitioning(("id", "x", "l"), schema.names)
