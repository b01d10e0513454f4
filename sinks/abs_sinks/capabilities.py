"""What some systems can do beside writing rows: small objects that a ``SinkFormat`` hands out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa

from abs_clients.tablelog import TableHistory
from abs_core.model import Finding, JobState
from abs_core.several import SinkGroup

if TYPE_CHECKING:
    from abs_sinks.deadletters.place import KeptLetters


class Sharing(ABC):
    """Several sinks of a job in one transaction of their system."""

    @abstractmethod
    def transactions(self, options: Any) -> Hashable | None:
        """Sinks for which it is equal, and not None, can share transactions."""

    @abstractmethod
    def group(self, sinks: Mapping[int, tuple[Any, pa.Schema]]) -> SinkGroup:
        """The group of sinks that share transactions: options and schemas by number."""

    @abstractmethod
    def together(
        self, sinks: Sequence[tuple[str, Any]], tasks: int | None, *, apart: Sequence[str] = ()
    ) -> Sequence[Finding]:
        """Check several such sinks of one job together.

        Args:
            sinks: name and options of each; at least two.
            tasks: per epoch; None: unknown.
            apart: names of sinks with tasks of their own.
        """

    @abstractmethod
    def replacing(self, options: Any) -> Any | None:
        """The options for epochs that each hold the whole result; None if this sink cannot."""


class Attempts(ABC):
    """Rows of attempts that no decision names yet, which readers skip."""

    @abstractmethod
    def places(self, options: Any) -> Sequence[str]:
        """Tables, topics or the like that may hold such rows."""

    @abstractmethod
    def give_up(self, options: Any, state: JobState) -> None:
        """Give up the undecided attempts of a stopped job, before its register goes."""


class LetterPlaces(ABC):
    """Places of the system that keep dead letters."""

    @abstractmethod
    def at(
        self, url: str, deadletter: str, table: str | None, more: Mapping[str, str]
    ) -> KeptLetters:
        """What ``deadletter`` keeps; ``table``: where rows are written again, by ``more`` options."""

    @abstractmethod
    def of(self, options: Any) -> KeptLetters:
        """Those where the options name a place; without one, those of others in the target."""

    def as_input(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        """Dead letters of other sinks (rows of ``LETTERS``) as input for such a sink."""
        return letters


class Log(ABC):
    """The target's own log of commits."""

    @abstractmethod
    def history(self, options: Any) -> TableHistory:
        """The commits, for ``abs audit duplicates``."""


@runtime_checkable
class SharesRows(Protocol):
    """A sink whose target may have rows in common with another one: a table and its partition."""

    def shares_rows(self, target: str) -> bool:
        """Whether another target (``Sink.target_id``) has; raises TargetError if it cannot be told."""
        ...
