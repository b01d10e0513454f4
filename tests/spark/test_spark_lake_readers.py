"""Spark reads the tables with delta-spark and iceberg-spark, which Maven has."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from abs_sinks.delta import DeltaSink
from abs_sinks.iceberg import IcebergSink
from abs_testing import SCHEMA
from abs_testing.case import Case
from tests.sinks.delta.harness import TableHarness as DeltaHarness
from tests.sinks.iceberg.harness import TableHarness as IcebergHarness
from tests.sinks.lake.test_lake_readers import EPOCHS
from tests.spark.lake_spark import ask_lake_spark


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_sparks_own_libraries_read_each_row_once(tmp_path: Path) -> None:
    delta, iceberg = DeltaHarness(str(tmp_path), {}), IcebergHarness(tmp_path, None, {})
    harnesses: list[tuple[Any, Any]] = [(delta, DeltaSink), (iceberg, IcebergSink)]
    for harness, sink in harnesses:
        options = replace(harness.options, partitionby=("value",))
        harness.new_sink = partial(sink, options, SCHEMA)
        for number, rows in enumerate(EPOCHS):
            Case(harness).run().epoch(number, rows[:1], rows[1:])
    metadata = iceberg.foreign.load_table("db.t").metadata_location
    place = tmp_path / "scratch"
    told = ask_lake_spark("read_lake.py", delta.options.path, metadata, place)
    every = [row for rows in EPOCHS for row in rows]
    # In a partition of Delta an empty text is NULL, by its specification.
    assert told["delta"] == [[id_, value or None] for id_, value in every]
    assert told["skipped"] == [[5, "__HIVE"], [6, None]]
    assert told["history"] == 3
    assert told["iceberg"] == [list(row) for row in every]
    assert told["of one partition"] == [[1, "a"], [4, "a"]]
    assert told["files"] == 6
