"""The rows that a target cannot hold are exactly those that it refuses one by one."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from abs_clients.s3.location import Location
from abs_core.contracts import Task
from abs_core.errors import RowError
from abs_core.model import HandleName
from abs_sinks import refusals
from abs_sinks.postgres.columns import checks as pg_checks
from abs_sinks.postgres.columns.plan import plan_columns
from abs_sinks.postgres.columns.table import CatalogTable
from abs_sinks.postgres.columns.types import Column, PgType
from abs_sinks.refusals import BadValuesError, Code, Reason, converting, find_bad_rows
from abs_sinks.s3.formats import encoding
from abs_sinks.s3.idempotent import IdempotentWriter
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.taskfiles import TaskFiles
from abs_sinks.s3.twophase import TwoPhaseWriter
from abs_sinks.s3.wal import WalWriter
from tests.planted import planted

TEXT = PgType(25, "text", "text", receive="textrecv")
VARCHAR3 = PgType(1043, "varchar", "varchar(3)", typmod=7, receive="varcharrecv")
DATE = PgType(1082, "date", "date")
TIMESTAMP0 = PgType(1114, "timestamp", "timestamp(0)", typmod=0)
JSONB = PgType(3802, "jsonb", "jsonb")
JSON = PgType(114, "json", "json")
UUID = PgType(2950, "uuid", "uuid")
INET = PgType(869, "inet", "inet")
INT8 = PgType(20, "int8", "bigint")


def several(element: PgType) -> PgType:
    return PgType(1, f"_{element.name}", f"{element.label}[]", element=element)


def texts(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary()).view(pa.string())


def lists(values: pa.Array, *lengths: int | None) -> pa.Array:
    """Lists of these lengths; None is NULL."""
    ends = np.cumsum([0, *(length or 0 for length in lengths)]).astype(np.int32)
    missing = pa.array([length is None for length in lengths])
    return pa.ListArray.from_arrays(pa.array(ends), values, mask=missing)


WORDS = texts(b"ab", b"abcd", None, b"a\0", b"\xff", "äöü".encode(), b"", b"abcde")
DAYS = pa.array([0, 2**31 - 1, None, -(2**31), 1, 2, 3, 4], pa.int32()).view(pa.date32())
TIMES = pa.array([0, 1, None, 10**6, -1, 5, -(2**63), 10**6], pa.timestamp("us"))
NESTED = lists(lists(WORDS, 1, 1, 2, 2, 1, 1), 1, None, 2, 1, 1, 1)
STRUCTS = pa.StructArray.from_arrays([WORDS, DAYS], ["a", "b"])
MAPS = pa.MapArray.from_arrays(
    [0, 1, 2, 4, 6, 8], texts(b"a", b"b", b"c", b"d", b"\xff", b"f", b"g", b"h"), WORDS
)
TWICE = pa.MapArray.from_arrays(
    pa.array([0, 2, None, 2, 4, 7, 8], pa.int32()),
    pa.array([1, 2, 1, 1, 3, 4, 3, 1]),
    pa.array(range(8)),
)
"""Those at 3 and 4 have one key twice."""
CASES: list[tuple[pa.Array, PgType, bool]] = [
    (WORDS, TEXT, True),
    (WORDS, VARCHAR3, False),
    (WORDS.dictionary_encode(), VARCHAR3, True),
    (WORDS, INET, False),
    (WORDS, UUID, False),
    (DAYS, DATE, True),
    (TIMES, TIMESTAMP0, False),
    (pa.array([1, 1000, None, 5], pa.timestamp("ns")), TIMESTAMP0, False),
    (lists(WORDS, 1, 1, None, 2, 0, 4), several(VARCHAR3), False),
    (lists(DAYS, 3, 1, 4), several(DATE), False),
    (lists(TIMES, 3, 1, None, 4), several(TIMESTAMP0), True),
    (NESTED, several(VARCHAR3), False),
    (NESTED, JSONB, False),
    (lists(lists(WORDS, 2, 2, 0, 4), 2, 2), several(INET), False),
    (lists(WORDS, 1, 1, 2, 1, 3), several(INET), False),
    (pa.array([[[1], [2]], [[1], []], None, [[1, 2], [3]], [None, [1]]]), several(INT8), False),
    (STRUCTS, JSONB, False),
    (lists(STRUCTS, 2, 2, 4), JSONB, False),
    (MAPS, JSONB, True),
    (lists(MAPS, 2, 2, None, 1), JSONB, False),
    (TWICE, JSONB, False),
    (lists(TWICE, 1, 2, None, 1, 2), JSONB, False),
]  # fmt: skip


def wrong_one_by_one(batch: pa.RecordBatch, check: Callable[[Any], object]) -> list[bool]:
    wrong = []
    for row in range(batch.num_rows):
        try:
            check(batch.slice(row, 1))
        except RowError:
            wrong.append(True)
        else:
            wrong.append(False)
    return wrong


def compare(values: pa.Array, pg: PgType, not_null: bool) -> None:
    batch = pa.record_batch({"n": np.arange(len(values)), "c": values})
    for given in (batch, batch.slice(1), batch.slice(2, max(1, len(values) - 3))):
        columns = (Column("n", INT8), Column("c", pg, not_null))
        encoder = plan_columns(given.schema, CatalogTable("public", "t", 1, columns)).encoder()
        encoder.header()
        bad = encoder.bad_rows(given)
        wrong = wrong_one_by_one(given, encoder.encode)
        assert (bad.which >= 0).tolist() == wrong
        assert {bad.reasons[at].column for at in bad.which[bad.which >= 0]} <= {"c"}
        encoder.encode(given.filter(pa.array([not one for one in wrong], pa.bool_())))
        if any(wrong):
            first = given.column(0)[wrong.index(True)]
            with pytest.raises(RowError, match=rf"first is row \d+ of the task .n={first}"):
                encoder.encode(given)


@pytest.mark.parametrize(("values", "pg", "not_null"), CASES)
def test_postgres_names_the_rows_that_it_refuses_one_by_one(
    values: pa.Array, pg: PgType, not_null: bool
) -> None:
    compare(values, pg, not_null)


def test_jsonb_gets_no_map_with_one_key_twice_and_json_does() -> None:
    batch = pa.record_batch({"c": pa.StructArray.from_arrays([TWICE], ["m"])})
    for pg, refused in ((JSONB, [3, 4]), (JSON, [])):
        table = CatalogTable("public", "t", 1, (Column("c", pg),))
        bad = plan_columns(batch.schema, table).encoder().bad_rows(batch)
        assert np.flatnonzero(bad.which >= 0).tolist() == refused
        assert {reason.code for reason in bad.reasons} <= {Code.MALFORMED}


def test_a_check_whose_elements_are_taken_for_rows_is_found() -> None:
    bug = pg_checks, "parents_of", lambda lists: np.arange(len(lists.flatten()))
    with planted(bug, by=(AssertionError, IndexError)):
        compare(lists(WORDS, 1, 1, None, 2, 0, 4), several(VARCHAR3), False)


@pytest.mark.parametrize("fileformat", ["json", "csv", "parquet"])
def test_s3_names_the_rows_that_it_refuses_one_by_one(fileformat: str) -> None:
    folders = pa.array(["a", "b" * 2000, "a", None, "b", "c", "d", "ü" * 800])
    batch = pa.record_batch({"n": np.arange(8), "folder": folders, "c": WORDS, "day": DAYS})
    options = S3Options(
        Location("bucket", "p"), fileformat=fileformat, compression="zstd", partitionby=("folder",)
    )
    files = TaskFiles(options, batch.schema, HandleName("0" * 16, "j", 1, 1, 0, "a" * 8))
    try:
        wrong = wrong_one_by_one(batch, files.check)
        assert (files.bad_rows(batch).which >= 0).tolist() == wrong
        assert [wrong[row] for row in (1, 2, 7)] == [True, False, True]
    finally:
        files.discard()


@pytest.mark.parametrize("kind", [TwoPhaseWriter, IdempotentWriter, WalWriter])
def test_each_writer_of_s3_tells_them_before_it_writes(kind: Callable[..., Any]) -> None:
    batch = pa.record_batch({"n": [1, 2, 3], "c": texts(b"a", b"b\0", b"c")})
    options = S3Options(Location("bucket", "p"), fileformat="json", compression="none")
    writer = kind(options, batch.schema, Task("0" * 16, "j", 1, 1, 0, "a" * 8))
    assert (writer.bad_rows(batch).which >= 0).tolist() == [False, True, False]


LONG = Reason(Code.TOO_LONG, "v", "are too long", "cut them")


def refused(batch: pa.RecordBatch, row: int, key: tuple[str, ...] = (), first: int = 40) -> str:
    bad = np.arange(batch.num_rows) == row

    def check(part: pa.RecordBatch) -> None:
        if part.num_rows == batch.num_rows:
            refusals.refuse(LONG, bad)

    return str(find_bad_rows(batch, check).error(batch, first, key))


@pytest.mark.parametrize(
    ("columns", "key", "named"),
    [
        ({"id": [1, 2], "v": ["a", "secret"]}, ("id",), "(id=2)"),
        ({"id": [1, 2], "topic": ["t", "t"], "partition": [0, 3], "offset": [8, 9]}, (),
         "(topic=t, partition=3, offset=9)"),
        ({"partition": [0, 3], "offset": [8, 9], "v": ["a", "secret"]}, (), "(partition=3, offset=9)"),
        ({"id": [1, 2], "v": ["a", "secret"], "w": ["x", "y" * 90]}, (), f"(id=2, w={'y' * 40}...)"),
        ({"v": ["a", "secret"]}, ("v",), "(it has no other column)"),
        ({"v": ["a", "b"], "at": pa.array([0, -(2**63)], pa.timestamp("us"))}, (), "(at=?)"),
    ],
)  # fmt: skip
def test_the_first_bad_row_is_named_without_the_value_that_is_refused(
    columns: dict[str, Any], key: tuple[str, ...], named: str
) -> None:
    text = refused(pa.record_batch(columns), 1, key)
    assert (
        f'Column "v": 1 of 2 values are too long; the first is row 41 of the task {named}.' in text
    )
    assert "secret" not in text


def test_reasons_do_not_travel_with_the_rows() -> None:
    error = pickle.loads(pickle.dumps(BadValuesError(LONG, np.arange(10**6))))
    assert type(error) is RowError
    assert "are too long" in str(error)


def test_a_check_that_passes_for_each_row_but_not_for_all_finds_none() -> None:
    batch = pa.record_batch({"n": np.arange(9)})

    def check(part: pa.RecordBatch) -> None:
        if part.num_rows == 9:
            raise BadValuesError(LONG, None)

    assert not find_bad_rows(batch, check)
    with (
        pytest.raises(BadValuesError),
        refusals.naming_rows(batch, lambda b: find_bad_rows(b, check)),
    ):
        check(batch)


def test_codes_are_durable() -> None:
    golden = Path(__file__).parents[1] / "golden" / "refusal_codes.txt"
    assert sorted(Code) == golden.read_text().split()


CONVERTING = partial(converting, "c", "int")


@pytest.mark.parametrize("doing", [CONVERTING, lambda: encoding(S3Options(Location("b", "p")))])
@pytest.mark.parametrize(
    ("error", "refuses"),
    [
        (pa.ArrowInvalid, True),
        (pa.ArrowNotImplementedError, True),
        (pa.ArrowMemoryError, False),
        (pa.ArrowCancelled, False),
        (pa.ArrowKeyError, False),
        (pa.ArrowIndexError, False),
    ],
)
def test_only_an_error_of_a_value_refuses_a_row(
    error: type[Exception], refuses: bool, doing: Callable[[], AbstractContextManager[None]]
) -> None:
    """Rows that are refused where memory is short would be dead letters."""
    with pytest.raises(BadValuesError if refuses else error), doing():
        raise error("what Arrow says")


def test_planted_an_error_of_the_machine_that_refuses_a_row_is_found() -> None:
    with planted((refusals, "OF_VALUES", (pa.ArrowException,)), by=BadValuesError):
        test_only_an_error_of_a_value_refuses_a_row(pa.ArrowMemoryError, False, CONVERTING)
