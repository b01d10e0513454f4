"""What a Delta table's log tells of a data file, made by the task that writes it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from abs_clients.delta.evolve import written


class DeltaEntries:
    """See ``abs_sinks.lake.table.Entries``."""

    partitions = None

    def entry(self, footer: Any, values: pa.RecordBatch) -> str:
        """The statistics; the values of the partition are in the file's path."""
        return stats_of(footer)


COLUMNS = 32
"""Columns from the left (Delta's default, delta.dataSkippingNumIndexedCols)."""

MAX_TEXT = 64
"""Characters of a text that is told whole; of longer ones nothing is told."""


def stats_of(footer: Any) -> str:
    """The JSON text of a file's ``pyarrow.parquet.FileMetaData``."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    names = set(footer.schema.to_arrow_schema().names)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for place in range(min(footer.num_columns, COLUMNS) if groups else 0):
        name = groups[0].column(place).path_in_schema
        if name not in names or "." in name:
            continue  # a part of a nested column, or it cannot be told from one
        statistics = [group.column(place).statistics for group in groups]
        if any(one is None for one in statistics):
            continue
        if all(one.has_null_count for one in statistics):
            nulls[name] = sum(one.null_count for one in statistics)
        bounds = _bounds(statistics)
        if bounds is not None:
            least[name], greatest[name] = bounds
    stats = {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest}
    return written({**stats, "nullCount": nulls})


def _bounds(statistics: Sequence[Any]) -> tuple[Any, Any] | None:
    filled = [one for one in statistics if one.has_min_max]
    if not filled or any(not one.has_min_max and one.num_values for one in statistics):
        return None
    low, high = min(one.min for one in filled), max(one.max for one in filled)
    if isinstance(low, bool | datetime) or not isinstance(low, int | str | date):
        return None
    if isinstance(low, str) and max(len(low), len(high)) > MAX_TEXT:
        return None
    return (low.isoformat(), high.isoformat()) if isinstance(low, date) else (low, high)
