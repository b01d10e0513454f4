"""Files of every kind give the same records; what cannot be read is an error, never a short read."""

from __future__ import annotations

import errno
import gzip
import os
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from boto3.exceptions import RetriesExceededError
from botocore.exceptions import ClientError, EndpointConnectionError

from abs_audit import AuditSettings, Files, Report, audit, side_of
from abs_audit.buried import WithDeadLetters
from abs_audit.families import Family, Type
from abs_audit.files import endings
from abs_audit.nested import canonicaliser
from abs_audit.s3 import S3Files
from abs_audit.textfiles import as_text, json_objects, text_schema
from abs_core.errors import (
    AbsError,
    ConfigError,
    DataError,
    OptionError,
    RefusedError,
    RowError,
    SchemaError,
    UnavailableError,
)
from abs_sinks.s3.door import FORMAT
from abs_sinks.s3.options import S3Options
from tests.audit.conftest import BY_ID

TABLE = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "text": ['a "b", c\nd', "", None],
        "real": [0.1, None, float("nan")],
        "price": pa.array([Decimal("12345678901234567890.10"), None, Decimal("-0.05")]),
        "at": pa.array(
            [datetime(2024, 1, 1, 5, tzinfo=UTC), None, None], pa.timestamp("us", "UTC")
        ),
        "yes": [True, False, None],
    }
)

CSV = (
    "id,text,real,price,at,yes\n"
    '1,"a ""b"", c\nd",0.1,12345678901234567890.1,2024-01-01T06:00:00+01:00,true\n'
    '2,"",,,,false\n'
    "3,,NaN,-0.0500,,\n"
)

# Nulls left out, as Spark writes them; numbers with all their digits.
NDJSON = (
    r'{"id":1,"text":"a \"b\", c\nd","real":0.1,"price":12345678901234567890.10,'
    '"at":"2024-01-01T05:00:00.000Z","yes":true}\n'
    '{"id":2,"text":"","yes":false}\n\n'
    '{"id":3,"real":NaN,"price":-5e-2}\n'
)


def write_parquet(path: Path) -> Path:
    pq.write_table(TABLE, path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def write_arrow(path: Path) -> Path:
    with pa.ipc.new_file(path.with_suffix(".arrow"), TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=2)
    return path.with_suffix(".arrow")


def write_arrow_stream(path: Path) -> Path:
    with pa.ipc.new_stream(path.with_suffix(".arrows"), TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=1)
    return path.with_suffix(".arrows")


def write_csv(path: Path) -> Path:
    path.with_suffix(".csv").write_text(CSV, newline="")
    return path.with_suffix(".csv")


def write_csv_gz(path: Path) -> Path:
    path.with_suffix(".csv.gz").write_bytes(gzip.compress(CSV.encode()))
    return path.with_suffix(".csv.gz")


def write_ndjson(path: Path) -> Path:
    path.with_suffix(".ndjson").write_text(NDJSON)
    return path.with_suffix(".ndjson")


def write_json_gz(path: Path) -> Path:
    path.with_suffix(".json.gz").write_bytes(gzip.compress(NDJSON.encode()))
    return path.with_suffix(".json.gz")


WRITERS: list[Callable[[Path], Path]] = [
    write_parquet, write_arrow, write_arrow_stream, write_csv, write_csv_gz, write_ndjson,
    write_json_gz,
]  # fmt: skip


def compared(expected: object, actual: object, **options: Any) -> Report:
    return audit(Files((str(expected),)), Files((str(actual),)), AuditSettings(**options))


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("turned", [False, True])
def test_every_format_holds_the_same_records(
    write: Callable[[Path], Path], turned: bool, tmp_path: Path
) -> None:
    sides = [write_parquet(tmp_path / "typed"), write(tmp_path / "other")]
    report = compared(*(sides[::-1] if turned else sides), key=["id"])
    assert report.clean, report.to_dict()


@pytest.mark.parametrize(
    ("column", "right", "wrong"),
    [
        ("price", "12345678901234567890.1", "12345678901234567890.2"),
        ("text", '2,"",', "2,,"),
        ("at", "06:00:00+01:00", "06:00:00+00:00"),
        ("real", ",0.1,", ",0.10000000000000002,"),
        ("yes", "false", "true"),
    ],
)
def test_a_changed_value_in_an_untyped_file_is_found(
    column: str, right: str, wrong: str, tmp_path: Path
) -> None:
    path = tmp_path / "changed.csv"
    path.write_text(CSV.replace(right, wrong, 1), newline="")
    report = compared(write_parquet(tmp_path / "typed"), path, key=["id"])
    assert report.differences.corrupted == 1
    assert set(report.differences.samples["corrupted"][0].changed) == {column}


def test_a_json_number_keeps_every_digit(tmp_path: Path) -> None:
    pq.write_table(pa.table({"p": [Decimal("0.1000000000000000000001")]}), tmp_path / "e.parquet")
    (tmp_path / "a.json").write_text('{"p": 0.1}\n')
    assert compared(tmp_path / "e.parquet", tmp_path / "a.json").differences.absent == 1
    (tmp_path / "a.json").write_text('{"p": 0.1000000000000000000001}\n')
    assert compared(tmp_path / "e.parquet", tmp_path / "a.json").clean


def test_json_in_a_file_compares_with_a_struct(tmp_path: Path) -> None:
    nested = pa.table(
        {"n": [{"a": 1, "b": [1.5, None], "at": datetime(2024, 1, 1, tzinfo=UTC), "x": None}]}
    )
    pq.write_table(nested, tmp_path / "e.parquet")
    path = tmp_path / "a.json"
    path.write_text('{"n": {"at": "2024-01-01T00:00:00.000000Z", "b": [1.50, null], "a": 1.0}}\n')
    assert compared(tmp_path / "e.parquet", path).clean
    for wrong in (
        '{"n": {"at": "2024-01-01T01:00:00Z", "b": [1.5, null], "a": 1}}',
        '{"n": {"at": "2024-01-01T00:00:00Z", "b": [1.5], "a": 1}}',
        '{"n": {"at": "2024-01-01T00:00:00Z", "b": [1.5, null], "a": 1, "more": 0}}',
        '{"n": {"at": "2024-01-01T00:00:00Z", "b": [1.5, null]}}',
    ):
        path.write_text(wrong)
        assert compared(tmp_path / "e.parquet", path).differences.absent == 1


@pytest.mark.parametrize(
    ("text", "same"), [("AP8=", 1), (r"\\x00FF", 1), ("AP4=", 0), (r"\\x00fe", 0), ("no bytes", 0)]
)
def test_bytes_in_a_file_of_json_are_base64_or_hexadecimal_digits(
    text: str, same: int, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": [1], "v": [{"b": b"\x00\xff"}]}), tmp_path / "e.parquet")
    (tmp_path / "a.json").write_text(f'{{"id": 1, "v": {{"b": "{text}"}}}}\n')
    report = audit(Files((str(tmp_path / "e.parquet"),)), Files((str(tmp_path / "a.json"),)), BY_ID)
    assert report.clean is bool(same)


def nested(levels: int) -> str:
    return f"{'[' * levels}{']' * levels}"


@pytest.mark.parametrize("levels", [400, 900, 100_000])
def test_a_record_that_is_nested_too_deep_is_a_typed_error(levels: int, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [nested(levels)]}), tmp_path / "e.parquet")
    (tmp_path / "deep.json").write_text(f'{{"a": {nested(levels)}}}\n')
    if levels == 400:
        assert compared(tmp_path / "e.parquet", tmp_path / "deep.json").clean
        return
    with pytest.raises(DataError, match=r"deep.json has a record that is nested"):
        compared(tmp_path / "e.parquet", tmp_path / "deep.json")


@pytest.mark.parametrize("levels", [400, 900, 100_000])
def test_nested_values_of_any_depth_have_a_canonical_text(levels: int) -> None:
    values = pa.array([nested(levels), f"{nested(levels)} ", '{"a": 1.0}'])
    first, second, small = canonicaliser(Type(Family.JSON))(values).to_pylist()
    assert small == '{"a": ["number", "1"]}'
    assert first == second or nested(levels) in first


def test_a_folder_is_read_whole_without_hidden_files(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (target / "deep" / "er").mkdir(parents=True)
    (target / "_temporary").mkdir()
    pq.write_table(TABLE.slice(0, 1), target / "part-0.parquet")
    pq.write_table(TABLE.slice(1), target / "deep" / "er" / "part-1.parquet")
    pq.write_table(TABLE, target / "_temporary" / "part-2.parquet")
    pq.write_table(TABLE, target / ".part-3.parquet")
    pq.write_table(TABLE, target / "part-4.parquet._COPYING_")
    (target / "_SUCCESS").touch()
    whole = write_parquet(tmp_path / "whole")
    assert compared(whole, target, key=["id"]).clean
    assert compared(whole, f"{target}/**/part-*.parquet", key=["id"]).clean


def test_a_folder_of_a_column_whose_name_begins_with_an_underscore_is_read(tmp_path: Path) -> None:
    target = tmp_path / "target"
    for at in range(len(TABLE)):
        (target / f"_part={at}").mkdir(parents=True)
        pq.write_table(TABLE.slice(at, 1), target / f"_part={at}" / "part-0.parquet")
    assert compared(write_parquet(tmp_path / "whole"), target, key=["id"]).clean


def test_a_column_that_only_a_later_file_has_is_not_passed_over(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    pq.write_table(pa.table({"id": [1]}), target / "a.parquet")
    pq.write_table(pa.table({"id": [2], "more": [1]}), target / "b.parquet")
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "e.parquet")
    with pytest.raises(SchemaError, match="more"):
        compared(tmp_path / "e.parquet", target)


def test_names_with_glob_characters_are_files_too(tmp_path: Path) -> None:
    odd = tmp_path / "a[1]*"
    odd.mkdir()
    pq.write_table(TABLE, odd / "x[2]?.parquet")
    whole = write_parquet(tmp_path / "whole")
    assert compared(whole, odd, key=["id"]).clean
    assert compared(whole, odd / "x[2]?.parquet", key=["id"]).clean


def test_a_file_that_appears_after_the_first_read_is_found(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    pq.write_table(TABLE, target / "a.parquet")

    class Late(Files):
        def rows(self, connection, names):  # type: ignore[no-untyped-def]
            if (target / "b.parquet").exists():
                return super().rows(connection, names)
            reads.append(1)
            found = super().rows(connection, names)
            if len(reads) == 2:
                pq.write_table(TABLE.slice(2), target / "b.parquet")
            return found

    reads: list[int] = []
    report = audit(Files((str(write_parquet(tmp_path / "e")),)), Late((str(target),)), BY_ID)
    assert report.differences.duplicate == 1


def test_the_null_marker_of_csv_stands_for_null_only_without_quotes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([None, "NA", "x"])}), tmp_path / "e.parquet")
    (tmp_path / "a.csv").write_text('a\nNA\n"NA"\nx\n')
    expected = Files((str(tmp_path / "e.parquet"),))
    assert audit(expected, Files((str(tmp_path / "a.csv"),), null="NA")).clean
    assert not audit(expected, Files((str(tmp_path / "a.csv"),))).clean


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_nothing_at_the_end_of_a_csv_is_null_also_behind_quotes(
    name: str, ending: str, tmp_path: Path
) -> None:
    content = f'a,b\n"x",y\n"x",{ending}'.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    pq.write_table(pa.table({"a": ["x", "x"], "b": ["y", None]}), tmp_path / "e.parquet")
    assert compared(tmp_path / "e.parquet", tmp_path / name).clean


def test_an_empty_line_of_a_csv_with_one_column_is_a_null(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1, None, 2])}), tmp_path / "e.parquet")
    (tmp_path / "a.csv").write_text("a\n1\n\n2\n")
    report = compared(tmp_path / "e.parquet", tmp_path / "a.csv")
    assert report.clean
    assert report.differences.actual == 3


def with_text(kind: pa.DataType, value: str, folder: Path) -> Report:
    """A typed null against one value of an untyped file."""
    pq.write_table(pa.table({"id": [1], "v": pa.nulls(1, kind)}), folder / "e.parquet")
    (folder / "a.csv").write_text(f"id,v\n1,{value}\n")
    return compared(folder / "e.parquet", folder / "a.csv", key=["id"])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), "x"),
        (pa.date32(), "2024-01-01 05:00:00"),
        (pa.timestamp("us"), "2024-01-01 00:00:00.0000001"),
        (pa.float64(), "x"),
        (pa.bool_(), "perhaps"),
    ],
)
def test_text_that_would_lose_a_part_as_the_other_sides_type_is_an_error(
    kind: pa.DataType, value: str, tmp_path: Path
) -> None:
    with pytest.raises(RowError, match="'v'"):
        with_text(kind, value, tmp_path)


def test_a_fraction_beside_an_integer_column_is_not_rounded(tmp_path: Path) -> None:
    report = with_text(pa.int64(), "1.5", tmp_path)
    assert report.differences.samples["corrupted"][0].changed == {"v": (None, "1.5")}


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("a.csv", "a,b\n1,2\n1,2,3\n", DataError),
        ("a.csv", "", DataError),
        ("a.json", '[{"a": 1}]', DataError),
        ("a.json", '{"a": 1\n', DataError),
        ("a.json", '{"a": 1}{"a": 2}\n', DataError),
        ("a.json", "1\n", DataError),
        ("a.json", '{"a": "\\ud800"}\n', DataError),
        ("a.parquet", "no parquet", DataError),
        ("a.arrow", "no arrow", DataError),
        ("a.csv.gz", "no gzip", DataError),
        ("a.xlsx", "x", OptionError),
        ("a", "x", OptionError),
    ],
)
def test_a_damaged_file_is_a_typed_error(
    name: str, content: str, error: type[Exception], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    pq.write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "e.parquet")
    with pytest.raises(error, match=name.partition(".")[0]):
        compared(tmp_path / "e.parquet", tmp_path / name, columns=["a"])


def test_what_cannot_be_looked_at_is_refused_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = write_parquet(tmp_path / "whole")
    with pytest.raises(RefusedError, match="File name too long"):
        compared(whole, tmp_path / ("n" * 300))
    (tmp_path / "folder").mkdir()
    write_parquet(tmp_path / "folder" / "whole")
    (tmp_path / "folder" / "closed").mkdir()
    scan = os.scandir

    def refuse(path: str) -> Any:  # for root, too, who may list all
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scan(path)

    assert compared(whole, tmp_path / "folder").clean
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(RefusedError, match=r"Permission denied: .*/closed") as error:
        compared(whole, tmp_path / "folder")
    assert "the right to read" in error.value.remedy


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.csv", [".csv"]),
        ("a.b.CSV.gz", [".CSV", ".gz"]),
        ("a.json.csv", [".csv"]),
        ("a.csv.gz.zst", []),
        ("a.gz", []),
        ("a.csv.unknown", []),
        ("csv", []),
    ],
)
def test_a_name_tells_the_format_by_its_last_parts(name: str, expected: list[str]) -> None:
    assert endings(name) == expected


def test_a_parquet_file_cut_off_is_a_typed_error(tmp_path: Path) -> None:
    whole = write_parquet(tmp_path / "whole")
    (tmp_path / "cut.parquet").write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(DataError, match="cut"):
        compared(whole, tmp_path / "cut.parquet")


def test_no_file_and_files_of_two_formats_are_errors(tmp_path: Path) -> None:
    whole = write_parquet(tmp_path / "whole")
    with pytest.raises(OptionError, match="no file"):
        compared(whole, tmp_path / "*.csv")
    write_csv(tmp_path / "whole")
    with pytest.raises(OptionError, match="several formats"):
        compared(whole, tmp_path)


@pytest.mark.parametrize("gone", ["gone.parquet", "gone*.parquet", "gone/*"])
@pytest.mark.parametrize("side", ["expected", "actual"])
def test_a_file_that_is_not_there_is_not_passed_over_beside_others(
    side: str, gone: str, tmp_path: Path
) -> None:
    """Its records would be neither expected nor read, and the audit clean."""
    there = write_parquet(tmp_path / "there")
    one, both = Files((str(there),)), Files((str(there), str(tmp_path / gone)))
    sides = (both, one) if side == "expected" else (one, both)
    assert audit(one, one, BY_ID).clean
    with pytest.raises(OptionError, match=r"gone.*there is no file to read"):
        audit(*sides, BY_ID)


def hints(report: Report) -> list[str]:
    return [note for note in report.notes if "trailing zeros of decimals" in note]


@pytest.mark.parametrize("key", [["id"], ["price"], []])
def test_records_that_differ_in_the_scale_of_decimals_only_are_hinted_at(
    key: list[str], tmp_path: Path
) -> None:
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.write_text("id,price,name\n1,1.50,a\n2,-0.00,b\n3,2.5,c\n4,x.10,d\n5,1.10,e\n")
    other.write_text("id,price,name\n1,1.5,a\n2,0,b\n3,2.6,c\n4,x.1,d\n5,1.1,other\n")
    report = compared(one, other, key=key)
    assert report.differences.absent == 5
    assert report.differences.scale_only == {"price": 2}
    assert not report.clean
    (hint,) = hints(report)
    assert hint.startswith("2 of the differing records")
    assert "'price'" in hint
    assert report.to_dict()["scale_only"] == {"price": 2}


def test_a_side_with_types_needs_no_hint_of_the_scale(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text(CSV.replace("-0.0500", "-0.0600"))
    report = compared(write_parquet(tmp_path / "typed"), path, key=["id"])
    assert report.differences.corrupted == 1
    assert hints(report) == []


def test_other_digits_are_no_matter_of_scale(tmp_path: Path) -> None:
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.write_text("id,price\n1,1.50\n2,10\n3,\n")
    other.write_text("id,price\n1,1.05\n2,1\n3,0.0\n")
    report = compared(one, other, key=["id"])
    assert report.differences.corrupted == 3
    assert hints(report) == []


def nested_by_folder(root: Path, write: Callable[[Path], Path]) -> Path:
    folder = root / "year=2025" / "id=7"
    folder.mkdir(parents=True)
    return write(folder / "a")


@pytest.mark.parametrize("write", WRITERS)
def test_a_column_of_the_file_counts_and_not_the_folder_of_its_name(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    """Whatever other column the folders have."""
    nested_by_folder(tmp_path / "actual", write)
    expected = write_parquet(tmp_path / "expected")
    assert compared(expected, tmp_path / "actual", key=["id"]).clean
    dated = pq.read_table(expected).append_column("year", pa.array([2025] * TABLE.num_rows))
    pq.write_table(dated, expected)
    assert compared(expected, tmp_path / "actual", key=["id"]).clean


def test_a_target_that_cannot_list_unfinished_writes_says_so_beside_dead_letters_too(
    tmp_path: Path,
) -> None:
    file = Files((str(write_parquet(tmp_path / "e")),))
    letters: Any = SimpleNamespace(found=list, shown=lambda ids: [])
    report = audit(file, WithDeadLetters(file, letters, lambda sink: True), BY_ID)
    assert report.clean
    assert any("unfinished writes were not checked" in note for note in report.notes)


def test_files_without_a_header_are_refused_by_that_name() -> None:
    given = {"path": "s3://bucket/a", "fileformat": "csv", "region": "us-east-1"}
    with pytest.raises(ConfigError, match="have no header, so nothing names their columns"):
        side_of(FORMAT).of(S3Options.parse({**given, "header": "false"}))
    for more in ({}, {"header": "true"}, {"fileformat": "json", "header": "true"}):
        assert side_of(FORMAT).of(S3Options.parse({**given, **more})).name == "s3://bucket/a"


def test_an_object_that_goes_between_listing_and_reading_is_told_as_that(tmp_path: Path) -> None:
    class Client:
        def download_file(self, *_: object) -> None:
            raise ClientError({"Error": {"Code": "404"}}, "HeadObject")

    with pytest.raises(UnavailableError, match="s3://b/p/k was removed while s3://b/p was read"):
        S3Files("b", "p")._copy(Client(), "p/k", tmp_path / "k")


def answered(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code}}, "ListObjectsV2")


@pytest.mark.parametrize(
    ("error", "kind", "match"),
    [
        (answered("NoSuchBucket"), ConfigError, "There is no s3://b/p"),
        (answered("AccessDenied"), RefusedError, "reading s3://b/p"),
        (
            RetriesExceededError(EndpointConnectionError(endpoint_url="http://h")),
            UnavailableError,
            "cannot be reached while reading s3://b/p",
        ),
    ],
)
def test_what_a_bucket_answers_is_told_by_what_it_is(
    error: Exception, kind: type[AbsError], match: str
) -> None:
    with pytest.raises(kind, match=match), S3Files("b", "p")._mapped():
        raise error


DEEP = 100_000


@pytest.mark.parametrize(
    ("lines", "match"),
    [
        ([b"{"], "is not JSON"),
        ([b"1"], "not one JSON object"),
        ([b'{"a": ' + b"[" * DEEP + b"]" * DEEP + b"}"], "nested hundreds of levels"),
        ([b'{"a": "\\ud800"}'], "half of a surrogate pair"),
    ],
)
def test_lines_that_are_no_records_are_named(lines: list[bytes], match: str) -> None:
    with pytest.raises(DataError, match=f"the file .*{match}"):
        as_text(json_objects(lines, "the file"), text_schema(["a"]), "the file")
