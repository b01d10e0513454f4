"""Random tables in random folders: the audit reads the rows, whichever columns stand in both."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from abs_audit import AuditSettings, Files, audit

COLUMNS = ("id", "day", "text", "place")
Row = tuple[int, int, str, str]
ROWS = st.tuples(
    st.integers(0, 99),
    st.integers(2020, 2023),
    st.sampled_from(["a", "b c", 'x"y', "1,5"]),
    st.sampled_from(["here", "a=b", "50%", "é"]),
)


@dataclass(frozen=True)
class Layout:
    """How rows become files.

    Args:
        folders: columns that name the folders, the outermost first.
        kept: columns that the files have. A folder of such a name tells another value.
    """

    form: str
    folders: tuple[str, ...]
    kept: frozenset[str]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    where = {name: draw(st.sampled_from(["file", "folder", "both"])) for name in COLUMNS}
    kept = frozenset(name for name in COLUMNS if where[name] != "folder")
    assume(kept)
    folders = [name for name in draw(st.permutations(COLUMNS)) if where[name] != "file"]
    return Layout(draw(st.sampled_from(["parquet", "arrow", "csv", "json"])), tuple(folders), kept)


def write(rows: list[Row], layout: Layout, root: Path) -> None:
    """One file for each row."""
    numbers = count()
    for row in rows:
        values = dict(zip(COLUMNS, row, strict=True))
        path = root
        for name in layout.folders:
            told = "7" if name in layout.kept else str(values[name])
            path /= f"{name}={quote(told, safe='')}"
        path.mkdir(parents=True, exist_ok=True)
        inside = {name: [value] for name, value in values.items() if name in layout.kept}
        write_file(pa.table(inside), path / f"{next(numbers)}.{layout.form}")


def write_file(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".csv":
        pcsv.write_csv(table, path)
    elif path.suffix == ".json":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(rows=st.lists(ROWS, min_size=1, max_size=5), layout=layouts(), changed=st.booleans())
def test_rows_in_folders_are_the_rows_that_were_written(
    rows: list[Row], layout: Layout, changed: bool
) -> None:
    event(f"columns in both: {len(layout.kept & set(layout.folders))}")
    with TemporaryDirectory() as scratch:
        expected = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        pq.write_table(pa.Table.from_pylist(expected), Path(scratch) / "expected.parquet")
        if changed:
            rows = [(rows[0][0] + 100, *rows[0][1:]), *rows[1:]]
        write(rows, layout, Path(scratch) / "actual")
        one, other = (Files((str(Path(scratch) / n),)) for n in ("expected.parquet", "actual"))
        report = audit(one, other, AuditSettings())
    assert report.differences.absent == report.differences.surplus == int(changed)
