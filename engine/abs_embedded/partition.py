"""Distributes an operator's output among the tasks of the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from abs_core.barriers.elements import Batch
from abs_core.errors import SchemaError
from abs_embedded.state.keygroups import key_groups, owner

Parts = Iterable[tuple[int, Batch]]
"""(task, its part of a batch)."""


class Partition(Protocol):
    """Pure; prints as in a plan. ``keyed``: the target depends on the rows alone."""

    @property
    def keyed(self) -> bool: ...

    def split(self, batch: Batch, width: int, sender: int, turn: int) -> Parts:
        """Pairs of task and part, parts in the order of the batch.

        Args:
            width: number of the receiver's tasks.
            sender: the sending task.
            turn: number of batches that this task has sent here.
        """
        ...


@dataclass(frozen=True, slots=True)
class Whole:
    """Whole batches; ``targets`` maps (width, sender, turn) to tasks."""

    name: str
    targets: Callable[[int, int, int], Iterable[int]]
    keyed = False

    def split(self, batch: Batch, width: int, sender: int, turn: int) -> Parts:
        return [(target, batch) for target in self.targets(width, sender, turn)]

    def __str__(self) -> str:
        return self.name


FORWARD = Whole("forward", lambda width, sender, turn: (0,))
"""One to one: same parallelism on both sides, and one channel for each task."""

REBALANCE = Whole("rebalance", lambda width, sender, turn: ((sender + turn) % width,))
"""Batches in turn. After a replay a batch may go to another task."""

BROADCAST = Whole("broadcast", lambda width, sender, turn: range(width))
"""Every batch to every task."""


@dataclass(frozen=True, slots=True)
class ByKey:
    """To the task that owns the key's group, by the rule of the state.

    ``columns`` are the key: integers, text or binary; without nulls.
    """

    columns: Sequence[str]
    max_parallelism: int
    keyed = True

    def split(self, batch: pa.RecordBatch, width: int, sender: int, turn: int) -> Parts:
        """Raises SchemaError for a missing key column, or a type that cannot be a key."""
        if width == 1:
            return ((0, batch),) if batch.num_rows else ()
        try:
            columns = [batch.column(name) for name in self.columns]
        except KeyError as error:
            raise SchemaError(
                f"The key {list(self.columns)} is not in the batch's columns {batch.schema.names}.",
                remedy="key by columns of the previous operator's output.",
            ) from error
        targets = owner(key_groups(columns, self.max_parallelism), width, self.max_parallelism)
        targets = targets.astype(np.uint16)  # 16 bits are sorted by radix, three times as fast
        order = np.argsort(targets, kind="stable")
        bounds = np.searchsorted(targets[order], np.arange(width + 1)).tolist()
        sorted_ = batch.take(pa.array(order))
        return [
            (target, sorted_.slice(start, end - start))
            for target, (start, end) in enumerate(pairwise(bounds))
            if end > start
        ]

    def __str__(self) -> str:
        return f"by {', '.join(self.columns)}"
