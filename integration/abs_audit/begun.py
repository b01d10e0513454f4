"""A target together with the register of the job that writes it, where that lies elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import pyarrow as pa
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from abs_audit.contracts import Relation
from abs_audit.families import Type
from abs_audit.report import LeftBehind, OpenDecision
from abs_core.registers import batch_job
from abs_sinks.register_at import open_register


@dataclass(frozen=True, slots=True)
class WithRegister(Relation):
    """A target, and what a job has decided or begun and not finished in it.

    Args:
        address: of the register, as ``abs_spark.once`` takes it.
        job: its name; of a batch job all tokens.
    """

    target: Relation
    address: str
    job: str

    @property
    def name(self) -> str:
        return self.target.name

    def columns(self, connection: DuckDBPyConnection) -> Mapping[str, Type]:
        return self.target.columns(connection)

    def rows(
        self, connection: DuckDBPyConnection, names: Sequence[str]
    ) -> AbstractContextManager[DuckDBPyRelation]:
        return self.target.rows(connection, names)

    def unfolded(self, rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        return self.target.unfolded(rows, names)

    def left_behind(self) -> LeftBehind:
        """A job without a register there is a doubt, too."""
        left = self.target.left_behind() or LeftBehind()
        jobs = [stored.state for stored in open_register(self.address).jobs()]
        states = [state for state in jobs if batch_job(state.job) == batch_job(self.job)]
        if not states:
            lacking = f"there is no register of job {self.job} where --register says"
            return replace(left, unchecked=(*left.unchecked, lacking))
        undone = (
            OpenDecision(state.job, decision.epoch, state.target)
            for state in states
            for decision in state.open
        )
        # The register of a database's own job is seen there, too.
        return replace(left, decisions=tuple(dict.fromkeys((*left.decisions, *undone))))
