"""Finds the table of a handle's rows: of one sink, or of several that share transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from abs_core.deadletters import counts_of
from abs_core.errors import ProtocolError
from abs_core.model import Committable, HandleName
from abs_core.sinkmap import number_of
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.target import Target, resolve


@dataclass(frozen=True, slots=True)
class Table:
    """A table as a sink writes to it.

    Args:
        schema: of the batches.
    """

    options: PostgresOptions
    schema: pa.Schema

    def target(self) -> Target:
        """See ``resolve``."""
        return resolve(self.options, self.schema)


@dataclass(frozen=True, slots=True)
class Part:
    """An epoch's staged rows for one table."""

    table: Table
    staged: tuple[Committable, ...]

    @property
    def rows(self) -> int:
        """With the dead ones."""
        return sum(committable.rows for committable in self.staged)

    @property
    def dead(self) -> dict[HandleName, int]:
        """How many rows of a handle are dead letters, where there are any."""
        own = [(c.handle, n) for c in self.staged for n in counts_of([c])]
        # Those of other sinks were given to this table as rows.
        return {handle: n.dead for handle, n in own if n.dead and n.sink == number_of(handle)}


class Tables:
    """The tables of one database to which one committer applies rows.

    Args:
        by_number: by the sink's number, in the order of applying: a table after those that it refers
            to. A single table takes handles of any number.
    """

    def __init__(self, by_number: Mapping[int, Table]) -> None:
        self._by_number = dict(by_number)

    @property
    def options(self) -> PostgresOptions:
        """The first sink's options: server, state schema and protocol are the same for all."""
        return next(iter(self._by_number.values())).options

    def parts(self, staged: Sequence[Committable]) -> list[Part]:
        """The staged rows by table, without tables that have nothing to do.

        Raises:
            ProtocolError: a handle is of none of these sinks.
        """
        shares: dict[int, list[Committable]] = {number: [] for number in self._by_number}
        only = next(iter(shares)) if len(shares) == 1 else None
        for committable in staged:
            number = number_of(committable.handle) if only is None else only
            if number not in shares:
                raise ProtocolError(
                    f"Staged rows belong to sink number {number}, which no longer writes to this "
                    "database.",
                    handle=committable.handle,
                    remedy="run the query with that sink once more; then remove it.",
                )
            shares[number].append(committable)
        parts = [Part(self._by_number[number], tuple(share)) for number, share in shares.items()]
        return [part for part in parts if part.staged or part.table.options.replaces]
