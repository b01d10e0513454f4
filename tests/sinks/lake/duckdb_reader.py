"""Reads a table with DuckDB, in an environment of its own: prints its rows as JSON.

python duckdb_reader.py delta FOLDER [COLUMNS]
python duckdb_reader.py iceberg METADATA_FILE [COLUMNS [FILTER ...]]

With filters it prints a list of rows for each of them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb


def main(kind: str, place: str, columns: str = "*", *filters: str) -> None:
    connection = duckdb.connect()
    [folder] = Path(duckdb.__file__).parents[1].glob("duckdb_ext/extensions/*/*")
    for name in ("delta",) if kind == "delta" else ("avro", "iceberg"):
        connection.execute(f"LOAD '{folder}/{name}.duckdb_extension'")
    connection.execute("SET TimeZone = 'UTC'")
    told = []
    for where in filters or ("true",):
        rows = connection.execute(f"SELECT {columns} FROM {kind}_scan(?) WHERE {where}", [place])
        names = [column[0] for column in rows.description]
        told.append([dict(zip(names, row, strict=True)) for row in rows.fetchall()])
    json.dump(told if filters else told[0], sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
