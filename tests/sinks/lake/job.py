"""A job on a new table, one task for each epoch, without an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from abs_core.errors import SchemaError
from abs_sinks.delta import DeltaOptions, DeltaSink
from abs_sinks.iceberg import IcebergSink
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import Run
from tests.sinks.iceberg.harness import TableHarness as IcebergHarness


class Job:
    """A job whose epochs have one task each."""

    def __init__(self, kind: str, folder: Path, **given: str) -> None:
        self.kind = kind
        if kind == "delta":
            self.options: Any = DeltaOptions.parse(
                {"path": str(folder / "t"), "createtable": "true", **given}
            )
            self.sink: Any = DeltaSink
        else:
            self.harness = IcebergHarness(folder, None, given)
            self.options, self.sink = self.harness.options, IcebergSink

    def epoch(
        self, number: int, batch: pa.RecordBatch, cut: Cut | None = None, **options: Any
    ) -> None:
        """With a cut the coordinator ends there."""
        sink = self.sink(replace(self.options, **options), batch.schema)
        run = Run(sink, "job", cut=cut)
        attempt = run.attempt(number, 0)
        try:
            attempt.writer.write(batch)
        except BaseException:
            attempt.writer.abort()
            raise
        attempt._rows += batch.num_rows
        run.commit(number, [attempt.pre_commit()])

    def decided(self, number: int, batch: pa.RecordBatch, **options: Any) -> None:
        with pytest.raises(Halted):
            self.epoch(number, batch, cut=Cut("commit"), **options)

    def committed(self, number: int, batch: pa.RecordBatch) -> None:
        """The coordinator ends before the register knows of the commit."""
        with pytest.raises(Halted):
            self.epoch(number, batch, cut=Cut("commit", handles=1))

    def refused(self, why: str, rows: pa.RecordBatch, change: Callable[[], None]) -> None:
        """Its table changes between task and decision, and nothing is decided."""
        run = Run(self.sink(self.options, rows.schema), "job")
        attempt = run.attempt(0, 0)
        attempt.writer.write(rows)
        attempt._rows += rows.num_rows
        made = attempt.pre_commit()
        change()
        with pytest.raises(SchemaError, match=why):
            run.commit(0, [made])
        assert not run.state().open

    def rows(self) -> list[dict[str, Any]]:
        found = self.options.address.read().read_all()
        return sorted(found.to_pylist(), key=repr)

    @property
    def table(self) -> Table:
        return self.harness.foreign.load_table(self.harness.name)

    @property
    def path(self) -> str:
        return str(self.options.path)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(columns)
