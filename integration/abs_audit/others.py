"""The target of another package's sink as a relation; see ``abs_core.formats``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from duckdb import DuckDBPyConnection, DuckDBPyRelation

from abs_audit.carry import carried, types_of
from abs_audit.families import Type
from abs_audit.report import LeftBehind, OpenDecision, Pending
from abs_audit.streams import streamed
from abs_core.formats import SinkFormat
from abs_core.model import AND
from abs_sinks.shown import shown


@dataclass(frozen=True, slots=True)
class TargetOfOthers:
    """Records from the format's ``read``, and doubts from its committer.

    Args:
        url: shown without possible secrets (I9).
        table: if the format has tables.
    """

    format: SinkFormat
    url: str
    table: str | None

    @property
    def name(self) -> str:
        return " ".join(filter(None, (shown(self.url), self.table)))

    def columns(self, connection: DuckDBPyConnection) -> Mapping[str, Type]:
        with self.format.read(self.url, self.table) as reader:
            empty = reader.schema.empty_table()
        return types_of(connection.from_arrow(empty), self.name)

    @contextlib.contextmanager
    def rows(
        self, connection: DuckDBPyConnection, names: Sequence[str]
    ) -> Iterator[DuckDBPyRelation]:
        with (
            self.format.read(self.url, self.table) as reader,
            streamed(connection, reader.schema, reader) as rows,
        ):
            yield carried(rows, names)

    def left_behind(self) -> LeftBehind:
        """Handles in doubt at the URL, in any table, and open decisions."""
        register, committer = self.format.look_after(self.url)
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
