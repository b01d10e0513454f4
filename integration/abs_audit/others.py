"""The target of any format as a relation, by what its door offers; see ``abs_sinks.door``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from duckdb import DuckDBPyConnection, DuckDBPyRelation

from abs_audit.carry import carried, types_of
from abs_audit.contracts import Relation, Side
from abs_audit.families import Type
from abs_audit.progress import streamed
from abs_audit.report import LeftBehind, OpenDecision, Pending
from abs_core.model import AND
from abs_sinks.door import SinkFormat


class OtherSide(Side):
    """See ``Side``: the rows are those that the format reads, and the doubts its committer's."""

    def at(self, url: str, table: str | None, null: str | None, stateschema: str) -> TargetOfOthers:
        return self.of(self.format.at(url, table, stateschema))

    def of(self, options: Any) -> TargetOfOthers:
        return TargetOfOthers(self.format, options)


@dataclass(frozen=True, slots=True)
class TargetOfOthers(Relation):
    """Records from the format's ``read``, and doubts from its committer."""

    format: SinkFormat
    options: Any

    @property
    def name(self) -> str:
        return self.format.where(self.options)

    def columns(self, connection: DuckDBPyConnection) -> Mapping[str, Type]:
        with self.format.read(self.options) as reader:
            empty = reader.schema.empty_table()
        types = types_of(connection.from_arrow(empty), self.name)
        partitions = self.format.partitions(self.options)
        return {name: replace(kind, folder=name in partitions) for name, kind in types.items()}

    @contextlib.contextmanager
    def rows(
        self, connection: DuckDBPyConnection, names: Sequence[str]
    ) -> Iterator[DuckDBPyRelation]:
        with (
            self.format.read(self.options) as reader,
            streamed(connection, reader.schema, reader) as rows,
        ):
            yield carried(rows, names)

    def left_behind(self) -> LeftBehind:
        """Handles in doubt in the target's system, in any table, and open decisions."""
        register, committer = self.format.administer(self.options)
        return LeftBehind(
            pending=tuple(
                Pending(f"{doubt.handle}: {doubt.detail}", doubt.age_seconds)
                for doubt in committer.in_doubt(None)
            ),
            decisions=tuple(
                OpenDecision(stored.state.job, decision.epoch, target)
                for stored in register.jobs()
                for decision in stored.state.open
                for target in stored.state.target.split(AND)
            ),
        )
