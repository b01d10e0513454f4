"""Statistics of a data file as a Delta log holds them, from its Parquet footer.

Readers skip files by them, so only what is exact is told: minimum and maximum of integers, dates and
short texts (NaN is outside of Parquet's for floats, and of moments Delta keeps milliseconds), and the
number of NULLs. A column without an entry is read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

COLUMNS = 32
"""Columns from the left (Delta's default, delta.dataSkippingNumIndexedCols)."""

TEXT_MAX = 64
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
    told = {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest}
    return json.dumps({**told, "nullCount": nulls}, separators=(",", ":"))


def _bounds(statistics: Sequence[Any]) -> tuple[Any, Any] | None:
    filled = [one for one in statistics if one.has_min_max]
    if not filled or any(not one.has_min_max and one.num_values for one in statistics):
        return None
    low, high = min(one.min for one in filled), max(one.max for one in filled)
    if isinstance(low, bool | datetime) or not isinstance(low, int | str | date):
        return None
    if isinstance(low, str) and max(len(low), len(high)) > TEXT_MAX:
        return None
    return (low.isoformat(), high.isoformat()) if isinstance(low, date) else (low, high)
