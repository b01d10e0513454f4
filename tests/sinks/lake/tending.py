"""What others do to a table beside a job, from time to time: compaction and expiry."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table, TableProperties

LOST = (DeltaError, CommitFailedException, ValidationException)
"""Errors of a foreign writer that lost a race; it has written nothing."""

KEPT = 5
"""Snapshots that an expiry leaves."""


def tend_delta(path: str) -> None:
    """Rewrite the table as few files or by Z-order; remove what it does not need any more, at once."""
    table = DeltaTable(path)
    if table.version() // 4 % 2:  # it takes four versions from one time to the next
        table.optimize.compact()
    else:
        table.optimize.z_order(["id"])
    table.vacuum(0, False, False)


def tend_iceberg(table: Table) -> None:
    """Rewrite the table's files as few, and expire old snapshots."""
    compact(table)
    table.refresh()
    if old := [each.snapshot_id for each in table.snapshots()[:-KEPT]]:
        table.maintenance.expire_snapshots().by_ids(old).commit()


def compact(table: Table) -> None:
    """One commit with the same rows in few files; the library has no such function."""
    # A try with another state would write the rows of this one.
    table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
    files = [task.file for task in table.scan().plan_files()]
    if len(files) < 2:
        return
    rows = table.scan().to_arrow()
    with table.transaction() as change, change.update_snapshot().overwrite() as overwrite:
        for file in files:
            overwrite.delete_data_file(file)
        made = _dataframe_to_data_files(change.table_metadata, rows, table.io)
        for new in made:
            overwrite.append_data_file(new)


class Beside:
    """Does things again and again, each in a thread, until the block ends.

    Attributes:
        done: how often each was done.
        lost: likewise, how often it lost a race.
    """

    def __init__(self, *acts: Callable[[], None], every: float = 0.2) -> None:
        self._acts = acts
        self._every = every
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(len(acts))
        self._ends: list[Future[None]] = []
        self.done = [0] * len(acts)
        self.lost = [0] * len(acts)

    def __enter__(self) -> Beside:
        self._ends = [self._pool.submit(self._again, number) for number in range(len(self._acts))]
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown()
        for end in self._ends:
            end.result()

    def _again(self, number: int) -> None:
        while not self._stop.wait(self._every):
            try:
                self._acts[number]()
            except LOST:
                self.lost[number] += 1
            else:
                self.done[number] += 1
