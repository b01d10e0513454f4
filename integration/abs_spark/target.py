"""A query's target: format, parsed options, and the schema of the input."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from abs_core.contracts import Sink
from abs_core.model import Finding, Guarantee
from abs_core.patience import Patience
from abs_core.several.grouping import SinkGroup
from abs_sinks.options import CommonOptions


class Options(Protocol):
    """A sink's options. Its ``repr`` shows no secret (I9); it is hashable and can be pickled."""

    @property
    def common(self) -> CommonOptions: ...

    @property
    def patience(self) -> Patience:
        """The patience with the target's system, including the system's name."""
        ...


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of sink, under the name that Spark users write.

    Args:
        name: as in ``writeStream.format(name)``.
        parse: reads the options; raises ``OptionError`` with all that is wrong.
        sink: builds the sink; does not connect. With ``co_commit=False``: for a job whose register is
            elsewhere, or has other sinks, too.
        guarantee: what options promise, without a connection.
        where: what options write to, for people (I9).
        transactions: of the options; sinks for which it is equal, and not None, can share transactions.
            None if no sinks of this kind can.
        group: the group of such sinks, of their options and schemas by number.
        replacing: the options for epochs that each hold the whole result; None if the sink cannot.
        together: what is found of several such sinks of one job, by name and options, that none finds
            alone; called as ``abs_sinks.postgres.budget.judge_together``.

    All are pickled by reference, so none is a class method, which Spark pickles by value: a target that
    is unpickled twice would not equal itself then, and its run never be found again.
    """

    name: str
    parse: Callable[[Mapping[str, str]], Any]
    sink: Callable[..., Sink]
    guarantee: Callable[[Any], Guarantee]
    where: Callable[[Any], str]
    transactions: Callable[[Any], Hashable | None] | None = None
    group: Callable[[Mapping[int, tuple[Any, pa.Schema]]], SinkGroup] | None = None
    replacing: Callable[[Any], Any | None] | None = None
    together: Callable[..., list[Finding]] | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """Builds the same sink in any process of the query.

    It is pickled to the executors, credentials included, as any Spark connector's options are; it is
    never in a plan, a message or a log.
    """

    format: Format
    options: Options
    schema: pa.Schema

    def sink(self, *, alone: bool = True) -> Sink:
        """A new sink; the caller closes it.

        Args:
            alone: whether it is the only one of its job, whose register it then has.
        """
        more = {} if alone else {"co_commit": False}
        return self.format.sink(self.options, self.schema, **more)

    @property
    def transactions(self) -> Hashable | None:
        """Targets for which it is equal, and not None, can share transactions."""
        if self.format.transactions is None:
            return None
        shared = self.format.transactions(self.options)
        return None if shared is None else (self.format.name, shared)


def groups(targets: Mapping[int, Target]) -> list[tuple[int, ...]]:
    """The numbers of the targets, grouped by shared transactions; each group has at least two."""
    fellows: dict[Hashable, list[int]] = {}
    for number, target in sorted(targets.items()):
        if target.transactions is not None:
            fellows.setdefault(target.transactions, []).append(number)
    return [tuple(numbers) for numbers in fellows.values() if len(numbers) > 1]


def commit_at_once(targets: Sequence[Target]) -> bool:
    """Whether the commit process has one transaction for all rows, and for the register's change."""
    numbered = dict(enumerate(targets))
    if len(numbered) < 2:
        return True
    return groups(numbered) == [tuple(numbered)] and not group_of(numbered).by_task


def group_of(targets: Mapping[int, Target]) -> SinkGroup:
    """The group of targets that share transactions, by number."""
    make = next(iter(targets.values())).format.group
    assert make is not None, "a format whose sinks share transactions makes their group"
    return make({number: (target.options, target.schema) for number, target in targets.items()})
