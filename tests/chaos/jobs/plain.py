"""A job in plain Python that keeps its position in a folder as Spark does; see ``MODES``.

Arguments: mode, URL of the database, folder.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

PACE_S = 0.02
"""Each step of an epoch takes that long: time for the killer to see it."""

NOTED_S = 0.5
"""Between a note and the rows: most of an epoch, also on a busy machine."""

Connection = psycopg.Connection[Any]


def insert(connection: Connection, rows: list[dict[str, Any]]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany("insert into target values (%(id)s, %(name)s)", rows)


def exact(connection: Connection, epoch: int, rows: list[dict[str, Any]]) -> None:
    """The usual recipe: the epoch's number is written with its rows, in one transaction."""
    with connection.transaction():
        connection.execute("create table if not exists done (epoch bigint primary key)")
        new = connection.execute(
            "insert into done values (%s) on conflict do nothing", [epoch]
        ).rowcount
        if new:
            insert(connection, rows)


def doubling(connection: Connection, epoch: int, rows: list[dict[str, Any]]) -> None:
    with connection.transaction():
        insert(connection, rows)


def changing(connection: Connection, epoch: int, rows: list[dict[str, Any]]) -> None:
    """Exact, but for one value."""
    exact(connection, epoch, [{**row, "name": "-"} if row["id"] == 7 else row for row in rows])


LATE: list[dict[str, Any]] = []


def losing(connection: Connection, epoch: int, rows: list[dict[str, Any]]) -> None:
    """Writes an epoch's rows when the next one comes, and takes them for written."""
    with connection.transaction():
        insert(connection, LATE)
    LATE[:] = rows


def noting(connection: Connection, epoch: int, rows: list[dict[str, Any]]) -> None:
    """Notes an epoch, so that it leaves a repeated one out; and only then writes its rows."""
    connection.execute("create table if not exists done (epoch bigint primary key)")
    note = "insert into done values (%s) on conflict do nothing"
    if connection.execute(note, [epoch]).rowcount:
        time.sleep(NOTED_S)
        with connection.transaction():
            insert(connection, rows)


def leaving(connection: Connection, epoch: int, rows: list[dict[str, Any]]) -> None:
    """Exact, and its first run leaves a prepared transaction on the table."""
    exact(connection, epoch, rows)
    if epoch == 0:
        with connection.transaction():
            insert(connection, [{"id": -1, "name": "left"}])
            connection.execute("prepare transaction 'abs1:left'")


MODES: dict[str, Callable[[Connection, int, list[dict[str, Any]]], None]] = {
    "exact": exact,
    "doubling": doubling,
    "changing": changing,
    "losing": losing,
    "leaving": leaving,
    "noting": noting,
}


def main(mode: str, url: str, folder: Path) -> None:
    offsets, commits = folder / "checkpoint" / "offsets", folder / "checkpoint" / "commits"
    listed = folder / "checkpoint" / "sources" / "0"
    for each in (offsets, commits, listed):
        each.mkdir(parents=True, exist_ok=True)
    files = sorted((folder / "input").iterdir())
    with psycopg.connect(url, autocommit=True) as connection:
        for epoch, file in enumerate(files):
            if (commits / f"{epoch}").exists():
                continue
            entry = {"path": file.as_uri(), "timestamp": 0, "batchId": epoch}
            (listed / f"{epoch}").write_text(f"v1\n{json.dumps(entry)}")
            (offsets / f"{epoch}").write_text(f'v1\n{{}}\n{{"logOffset":{epoch}}}')
            time.sleep(PACE_S)
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            MODES[mode](connection, epoch, rows)
            temporary = commits / f".{epoch}.{uuid.uuid4()}.tmp"
            temporary.write_text("v1")
            time.sleep(PACE_S)
            temporary.rename(commits / f"{epoch}")
            time.sleep(PACE_S)
        insert(connection, LATE)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
