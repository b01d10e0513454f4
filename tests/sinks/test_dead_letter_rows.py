"""The row of a dead letter reads back without loss, whatever its values are."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from abs_core.errors import CorruptionError, DataError
from abs_sinks import text
from abs_sinks.deadletters import row
from abs_sinks.deadletters.letter import (
    LETTERS,
    Shown,
    dead_letters,
    schema_of,
    schema_text,
    why_bad,
)
from abs_sinks.deadletters.place import readable
from abs_sinks.deadletters.replay import AppendedLetters, BuryingSink
from abs_sinks.deadletters.row import rows_of
from abs_sinks.refusals import BadRows, Code, Reason
from tests.planted import planted

NOT_UTF8 = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.array([0, 1, 3], pa.int32()).buffers()[1], pa.py_buffer(b"\xffab")]
)
STRUCT = pa.struct([("x", pa.string()), ("y", pa.decimal128(5, 2))])
BATCH = pa.record_batch(
    {
        "number": pa.array([1, None]),
        "text": pa.array(["a\0b", 'ü\U0001f600"']),
        "bytes as text": NOT_UTF8,
        "double": pa.array([float("-inf"), 1e-300]),
        "float": pa.array([0.1, -0.0], pa.float32()),
        "decimal": pa.array([Decimal("1.20"), Decimal("-" + "9" * 36)], pa.decimal128(38, 2)),
        "day": pa.array([-800_000, 1], pa.int32()).view(pa.date32()),
        "moment": pa.array([10**15, -(10**17)], pa.int64()).view(pa.timestamp("us", "UTC")),
        "clock": pa.array([10**15, None], pa.int64()).view(pa.timestamp("us")),
        "time": pa.array([dt.time(1, 2, 3, 4), None], pa.time64("us")),
        "midnight": pa.array([86_400_000_000, 0], pa.time64("us")),
        "time of ns": pa.array([dt.time(1, 2, 3), None], pa.time64("ns")),
        "second": pa.array([-5, 10**10], pa.timestamp("s")),
        "bytes": pa.array([b"\0\xff", b""]),
        "interval": pa.array([(1, -2, 3000), None], pa.month_day_nano_interval()),
        "duration": pa.array([5, -7], pa.duration("us")),
        "list": pa.array([[1, None], []]),
        "struct": pa.array([{"x": "q", "y": Decimal("1.5")}, None], STRUCT),
        "map": pa.array([[(1, "a")], [(2, None)]], pa.map_(pa.int32(), pa.string())),
        "large": pa.array([["a\0"], ["b"]], pa.large_list(pa.large_string())),
        "yes": pa.array([True, False]),
    }
)
BAD = BadRows((Reason(Code.NULL, "number", "are NULL", "fill them"),), np.array([0, 0]))


def reads_back() -> None:
    letters = dead_letters(BATCH, why_bad(BAD), Shown(("number",)))
    read = rows_of([each.row for each in letters], schema_of(schema_text(BATCH.schema)))
    for name in BATCH.schema.names:
        assert read.column(name).equals(BATCH.column(name)), name
        # Two zeros are equal, and not as text.
        assert str(read.column(name).drop_null()) == str(BATCH.column(name).drop_null()), name
    assert [each.key for each in letters] == ['{"number":1}', '{"number":null}']
    assert all(each.row.isascii() and "\\u0000" not in each.row for each in letters)


def test_a_row_reads_back_without_loss() -> None:
    reads_back()


def test_a_map_with_one_key_twice_reads_back() -> None:
    maps = pa.MapArray.from_arrays([0, 2, 3], pa.array(["a", "a", "b"]), pa.array([1, 2, 3]))
    nested = pa.ListArray.from_arrays([0, 1, 2], maps)
    batch = pa.record_batch({"map": maps, "list": nested})
    letters = dead_letters(batch, [(0, "null", "", None), (1, "null", "", None)], Shown())
    assert rows_of([each.row for each in letters], batch.schema).equals(batch)
    assert "abs:arrow" not in letters[1].row


def test_a_time_that_arrow_has_no_text_for_is_found() -> None:
    with planted(
        (text, "_times", lambda array, column: array.cast(pa.string())), by=CorruptionError
    ):
        reads_back()


def reads_a_zero_of_the_server() -> None:
    """PostgreSQL writes a double without a fraction as JSON has integers."""
    schema = pa.schema([("double", pa.float64()), ("list", pa.list_(pa.float32()))])
    read = rows_of(['{"double":-0,"list":[-0,0,1]}'], schema)
    assert str(read.to_pylist()) == "[{'double': -0.0, 'list': [-0.0, 0.0, 1.0]}]"


def test_the_sign_of_a_zero_is_kept() -> None:
    reads_a_zero_of_the_server()


def test_a_zero_that_loses_its_sign_is_found() -> None:
    with planted((row, "_number", int)):
        reads_a_zero_of_the_server()


SERVER: dict[str, tuple[pa.DataType, str, list[object]]] = {
    "texts in jsonb[]": (
        pa.list_(pa.string()),
        '[{"a":1.50,"b":[1E+2,null,"x"]},"y",7]',
        ['{"a":1.50,"b":[1E+2,null,"x"]}', "y", "7"],
    ),
    "texts in numeric[]": (pa.list_(pa.string()), "[1.50,null,-3]", ["1.50", None, "-3"]),
    "durations": (
        pa.list_(pa.duration("us")),
        '["-26:03:04.5", "00:00:00", null, [0, 1, 2]]',
        [
            *(-dt.timedelta(hours=26, minutes=3, seconds=4.5), dt.timedelta(0), None),
            dt.timedelta(days=1, microseconds=2),
        ],
    ),
    "intervals": (
        pa.list_(pa.month_day_nano_interval()),
        '["-1 years -2 mons +3 days -04:05:06.000007", "1 mon", "00:00:00"]',
        list(map(pa.MonthDayNano, ([-14, 3, -14_706_000_007_000], [1, 0, 0], [0, 0, 0]))),
    ),
    "uuids": (
        pa.list_(pa.binary(16)),
        '["00112233-4455-6677-8899-aabbccddeeff"]',
        [bytes.fromhex("00112233445566778899aabbccddeeff")],
    ),
    "dates": (
        pa.list_(pa.date32()),
        '["2024-02-29T00:00:00", "2024-02-29"]',
        [dt.date(2024, 2, 29)] * 2,
    ),
}


@pytest.mark.parametrize("name", SERVER)
def test_what_the_server_writes_of_lists_is_read_as_older_releases_kept_it(name: str) -> None:
    kind, text, values = SERVER[name]
    read = rows_of([f'{{"c":{text}}}'], pa.schema([("c", kind)])).column("c")
    assert (read.type, read.to_pylist()) == (kind, [values])


@pytest.mark.parametrize("text", ['"1 fortnight"', '"1:2"', "[1, 2]", "7"])
def test_what_is_no_interval_is_an_error(text: str) -> None:
    for kind in (pa.duration("us"), pa.month_day_nano_interval()):
        with pytest.raises(CorruptionError):
            rows_of([f'{{"c":{text}}}'], pa.schema([("c", kind)]))


def test_columns_that_are_left_out_are_nowhere() -> None:
    shown = Shown(("number",), ("NUMBER", "text"))
    letter = dead_letters(BATCH, why_bad(BAD), shown)[0]
    assert letter.key is None
    assert not {"number", "text"} & json.loads(letter.row).keys()
    assert "number" not in rows_of([letter.row], BATCH.schema).schema.names


@pytest.mark.parametrize("text", ["", '{"number":"x"}', '{"number":{"abs:arrow":"!"}}'])
def test_a_damaged_row_is_an_error(text: str) -> None:
    with pytest.raises(CorruptionError, match="cannot be read"):
        rows_of([text], pa.schema([("number", pa.int64())]))


FAR = 253_402_300_800 * 10**6
"""The year 10000 in microseconds."""


@pytest.mark.parametrize(
    ("text", "kind", "number"),
    [
        ("10000-01-01T00:00:00.000005+00:00", pa.timestamp("us", "UTC"), FAR + 5),
        ("10000-01-01T02:00:00+02:00", pa.timestamp("us", "UTC"), FAR),
        ("0001-12-31T00:00:00+00:00 BC", pa.timestamp("us", "UTC"), -62_135_683_200 * 10**6),
        ("10000-01-01", pa.date32(), 2_932_897),
        ("0001-12-31 BC", pa.date32(), -719_163),
    ],
)
def test_a_time_that_python_has_no_year_for_reads_back(
    text: str, kind: pa.DataType, number: int
) -> None:
    read = rows_of([json.dumps({"t": text})], pa.schema([("t", kind)]))
    size = pa.int32() if kind == pa.date32() else pa.int64()
    assert read.column("t").view(size).to_pylist() == [number]


@pytest.mark.parametrize("key", ["abs:arrow", "abs:plain", "abs:other"])
@pytest.mark.parametrize("value", ["hello", '"abs:arrow"', "!"])
def test_an_object_with_keys_like_ours_reads_back(key: str, value: str) -> None:
    pairs = pa.array(
        [[(key, value)], [(key, value), ("k", "v")]], pa.map_(pa.string(), pa.string())
    )
    batch = pa.record_batch({"number": pa.array([None, None], pa.int64()), "m": pairs})
    letters = dead_letters(batch, [(0, "null", "x", None), (1, "null", "x", None)], Shown())
    assert rows_of([each.row for each in letters], batch.schema).column("m").equals(pairs)


def test_a_map_of_an_older_release_with_a_key_of_ours_is_a_map() -> None:
    schema = pa.schema([("m", pa.map_(pa.string(), pa.string()))])
    read = rows_of(['{"m":{"abs:arrow":"hello"}}'], schema)
    assert read.column("m").to_pylist() == [[("abs:arrow", "hello")]]


class Read(AppendedLetters):
    """Letters of a place that holds these texts."""

    def __init__(self, *texts: bytes) -> None:
        self._texts = texts

    def _read(self) -> list[tuple[str, bytes]]:
        return [(f"0:{number}", text) for number, text in enumerate(self._texts)]

    def _sink(self, schema: pa.Schema, written: Mapping[str, str]) -> BuryingSink:
        raise NotImplementedError

    _place, _target = "topic dead", "x"


def test_what_is_no_letter_is_named_among_the_others() -> None:
    letter: dict[str, object] = dict.fromkeys(LETTERS.names, "x")
    kept = Read(b"not JSON", json.dumps(letter).encode(), b'{"code": "x"}')
    assert [(each["id"], each["code"]) for each in kept.found()] == [
        ("0:0", "unreadable"),
        ("0:1", "x"),
        ("0:2", "unreadable"),
    ]
    with pytest.raises(DataError, match=r"letter 0:0: .* letter 0:2: .* The other 0 were written"):
        kept.replay(["0:0", "0:2"])


def test_letters_whose_rows_are_read_in_two_types_are_read_all_the_same() -> None:
    """Arrow makes an encoded column of one value, and not of another: the replay of all ended so."""
    beyond = 2**62  # a year that has no text
    column = pa.array([0, beyond, None], pa.timestamp("ns", "+05:30")).dictionary_encode()
    batch = pa.RecordBatch.from_arrays([column], names=["d"])
    refused = dead_letters(batch, [(row, "code", "message", None) for row in range(3)], Shown())
    schema = schema_text(batch.schema)
    letters = [{"id": n, "row": one.row, "schema": schema} for n, one in enumerate(refused)]
    groups, unread = readable(letters)
    assert not unread
    assert [[one["id"] for one in group] for group, _ in groups] == [[0, 2], [1]]
    read = [value.as_py() for _, rows in groups for value in rows.column(0).cast(pa.int64())]
    assert read == [0, None, beyond]
