"""A query's target: format, parsed options, and the schema of the input."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from abs_core.contracts import Sink
from abs_core.errors import AbsError, OptionError
from abs_core.model import Guarantee
from abs_core.several.grouping import SinkGroup
from abs_sinks.door import Options, SinkFormat, format_named
from abs_spark.wal_default import with_wal


@dataclass(frozen=True, slots=True)
class Target:
    """Builds the same sink in any process of the query.

    It is pickled to the executors, credentials included, as any Spark connector's options are; it is
    never in a plan, a message or a log.
    """

    format: SinkFormat
    options: Options
    schema: pa.Schema

    def sink(self, *, alone: bool = True) -> Sink:
        """A new sink; the caller closes it.

        Args:
            alone: whether it is the only one of its job, whose register it then has.

        Raises:
            OptionError: it can only be alone.
        """
        sink = self.format.sink(self.options, self.schema, alone=alone)
        if not alone and sink.committer().co_commits:
            sink.close()
            raise OptionError(
                f"The sink {self.format.name} commits rows and register in one transaction, and cannot "
                "be used together with other sinks.",
                remedy="use it alone, or with another protocol of it.",
            )
        return sink

    @property
    def transactions(self) -> Hashable | None:
        """Targets for which it is equal, and not None, can share transactions."""
        shared = self.format.transactions(self.options)
        return None if shared is None else (self.format.name, shared)


def parse(format_: SinkFormat, given: Mapping[str, str], *, started: bool = True) -> Any:
    """The options of a job, with the log of a stream (``wal_default``).

    Args:
        started: whether Spark has made the checkpoint.

    Raises:
        OptionError: lists everything that is wrong.
    """
    return format_.parse(with_wal(given, started=started) if format_.segments_beside else given)


def described(format_: str, options: Mapping[str, str]) -> str:
    """A sink's target and guarantee, as far as its options tell them; no secret (I9)."""
    try:
        kind = format_named(format_)
        parsed = parse(kind, options)
        promise = kind.guarantee(parsed)
    except AbsError as error:
        return f"its options cannot be used: {error.what}"
    return f"{kind.where(parsed)}: {promised(promise)}"


def promised(promise: Guarantee) -> str:
    """What a sink promises, in one line."""
    how = f"protocol {promise.protocol}, write {promise.write}"
    return f"every row exactly once ({how}); visible {promise.visibility}"


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
    kind = next(iter(targets.values())).format
    return kind.group(
        {number: (target.options, target.schema) for number, target in targets.items()}
    )
