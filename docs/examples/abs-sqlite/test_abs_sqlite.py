"""The sink is proven by the checks that abs-sinks ships."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from abs_sqlite import SqliteRegister, sink, transaction

from abs_testing import (
    SCHEMA,
    ForkServer,
    Row,
    check_crashes,
    check_register,
    check_sink,
)


class SqliteHarness:
    """One empty table, as the checks see it."""

    own_register = True

    def __init__(self, path: Path) -> None:
        self._path = path
        with transaction(path) as db:
            db.execute("CREATE TABLE sales (id INTEGER, value TEXT)")
        # To be pickled, for the checks that kill processes.
        self.new_sink = partial(sink, {"path": str(path), "dbtable": "sales"}, SCHEMA)

    def read(self) -> Sequence[Row]:
        with transaction(self._path) as db:
            return db.execute("SELECT id, value FROM sales").fetchall()

    def leftovers(self, job: str) -> Sequence[str]:
        with transaction(self._path) as db:
            query = (
                "SELECT handle FROM abs_prepared WHERE job = :job "
                "UNION ALL SELECT handle FROM abs_marker WHERE job = :job"
            )
            return [handle for (handle,) in db.execute(query, {"job": job})]


@contextmanager
def open_table(folder: Path) -> Iterator[SqliteHarness]:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        yield SqliteHarness(Path(place) / "shop.db")


def test_the_sink_keeps_every_rule(tmp_path: Path) -> None:
    print(len(check_sink(partial(open_table, tmp_path))), "rules")


def test_a_crash_at_any_point_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with ForkServer() as fork_server:
        killed = check_crashes(partial(open_table, tmp_path), fork_server, passages=1)
    print(killed.histories, "jobs,", killed.points.total(), "kills")


def test_the_register_is_one_cell_for_each_job(tmp_path: Path) -> None:
    print(len(check_register(lambda: SqliteRegister(tmp_path / "shop.db"))), "rules")
