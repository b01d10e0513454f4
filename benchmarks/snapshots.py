"""What an epoch into an Iceberg table costs by the number of the table's snapshots; no Spark.

    python -m benchmarks.snapshots            # a catalog in SQLite
    python -m benchmarks.snapshots rest       # Iceberg's RESTCatalogServer

The tables are synthetic: one true commit, and its snapshot as often as wanted in the metadata file. A
job with epochs of three rows takes turns with pyiceberg's own ``load_table`` and ``append`` of as many.
CPU is of this process alone, without the catalog's server.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from rich.console import Console
from rich.table import Table

from abs_sinks.iceberg import IcebergOptions, IcebergSink
from abs_testing import SCHEMA
from abs_testing.case import rows
from abs_testing.engine import Run
from abs_testing.harness import batch_of
from tests.kit.rest_catalog import rest_catalog
from tests.sinks.iceberg.harness import catalog_in

NUMBERS, ROUNDS, WARM_UP = (1, 100, 500, 1000, 2000), 9, 2
EXPIRED = (500, 100)
"""A table with so many, of which pyiceberg's expiry leaves the second number; it takes a while."""


def with_snapshots(catalog: Catalog, name: str, number: int, folder: Path) -> None:
    """Make a table that has so many, each the parent of the next one.

    Args:
        folder: for its metadata file.
    """
    properties = {"commit.manifest-merge.enabled": "true"}
    table = catalog.create_table(name, SCHEMA, properties=properties)
    told = {"abs.job": "job", "abs.epoch": "1", "abs-0123456789abcdef0123-0": str(1 << 32)}
    table.append(pa.Table.from_batches([batch_of(rows(0, 3))]), snapshot_properties=told)
    metadata = json.loads(table.metadata.model_dump_json(exclude_none=True))
    [last] = metadata["snapshots"]
    first = last["snapshot-id"] - number + 1
    begin = last["timestamp-ms"] - number + 1
    snapshots = [
        {
            **last,
            "snapshot-id": first + n,
            **({"parent-snapshot-id": first + n - 1} if n else {}),
            "sequence-number": n + 1,
            "timestamp-ms": begin + n,
        }
        for n in range(number)
    ]
    log = [
        {"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]}
        for one in snapshots
    ]
    metadata |= {"snapshots": snapshots, "snapshot-log": log, "last-sequence-number": number}
    place = folder / f"00001-{name}.metadata.json"
    place.write_text(json.dumps(metadata))
    catalog.drop_table(name)
    catalog.register_table(name, f"file://{place}")


class Job:
    """A job on a table; its tasks and its commits in turn."""

    def __init__(self, name: str, properties: Mapping[str, str]) -> None:
        given = {f"catalog.{key}": value for key, value in properties.items()}
        self._run = Run(IcebergSink(IcebergOptions.parse({"table": name, **given}), SCHEMA), "job")
        self._epoch = 0

    def turn(self) -> Callable[[], None]:
        """Its task; what it returns commits."""
        number, self._epoch = self._epoch, self._epoch + 1
        shares = self._run.tasks(number, rows(3 * number, 3))
        return lambda: self._run.commit(number, shares)


def cpu_ms(doing: Callable[[], Any]) -> float:
    began = time.process_time()
    doing()
    return (time.process_time() - began) * 1000


def costs(
    catalog: Catalog, given: Mapping[str, str], number: int, kept: int, folder: Path
) -> list[float]:
    """CPU ms of an epoch's commit, and of an append by pyiceberg; medians."""
    ours, other = (f"db.{side}_{number}_{kept}" for side in ("ours", "bare"))
    for name in (ours, other):
        with_snapshots(catalog, name, number, folder)
        if old := [one.snapshot_id for one in catalog.load_table(name).snapshots()[:-kept]]:
            catalog.load_table(name).maintenance.expire_snapshots().by_ids(old).commit()
    job, batch = Job(ours, given), pa.Table.from_batches([batch_of(rows(0, 3))])

    def bare() -> None:
        catalog.load_table(other).append(batch)

    taken: list[tuple[float, float]] = []
    for turn in range(WARM_UP + ROUNDS):
        commit = job.turn()
        sides = [commit, bare]
        ms = {side: cpu_ms(side) for side in (sides if turn % 2 else sides[::-1])}
        taken.append((ms[commit], ms[bare]))
    return [median(side) for side in zip(*taken[WARM_UP:], strict=True)]


def main() -> None:
    """Measure and print."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="abs-snapshots-")))
        if "rest" in sys.argv:
            given = {"type": "rest", "uri": stack.enter_context(rest_catalog(folder / "rest"))}
            load_catalog("default", **given).create_namespace("db")
        else:
            given = catalog_in(folder)
        catalog = load_catalog("default", **given)
        table = Table("snapshots", "CPU ms of an epoch's commit", "of pyiceberg's append")
        for number, kept in [*zip(NUMBERS, NUMBERS, strict=True), EXPIRED]:
            ms = costs(catalog, given, number, kept, folder)
            name = str(number) if kept == number else f"{number}, {kept} of them kept"
            table.add_row(name, *(f"{one:.0f}" for one in ms))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
