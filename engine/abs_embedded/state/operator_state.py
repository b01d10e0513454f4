"""Operator state: lists of a subtask, not of keys, such as a source's offsets.

On restore a ``split`` list stays with its subtask if the parallelism is the same, and is
redistributed otherwise: each item to exactly one subtask. A ``union`` list is given whole to every
subtask. Lists are small: they are copied whole at each snapshot, and stored in the completion
record.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from abs_core.errors import ConfigError
from abs_core.strictjson import of, text
from abs_embedded.state.codecs import Codec

T = TypeVar("T")


class Mode(StrEnum):
    """What a restore gives to a subtask: its share, or all."""

    SPLIT = "split"
    UNION = "union"


@dataclass(frozen=True, slots=True)
class Contents:
    """The lists of one subtask at one moment: (name, mode, items) by name."""

    lists: tuple[tuple[str, Mode, tuple[bytes, ...]], ...] = ()

    def to_json(self) -> list[Any]:
        return [
            [name, mode, [b64encode(i).decode() for i in items]] for name, mode, items in self.lists
        ]

    @classmethod
    def from_json(cls, value: object) -> Contents:
        """Raises ``ValueError`` for anything that ``to_json`` did not make."""
        return cls(tuple(_list_from_json(one) for one in of(list, value)))


def _list_from_json(value: object) -> tuple[str, Mode, tuple[bytes, ...]]:
    name, mode, items = of(list, value)
    decoded = tuple(b64decode(text(item), validate=True) for item in of(list, items))
    return text(name), Mode(text(mode)), decoded


def redistribute(olds: Sequence[Contents], subtask: int, parallelism: int) -> Contents:
    """One subtask's part of the lists of all old subtasks (in the order of their number).

    With an unchanged number each keeps its own, as channel data stays with its task, too: a
    source's split on another task could overtake it. Raises ConfigError if a list is ``split`` in
    one subtask and ``union`` in another.
    """
    pooled: dict[str, tuple[Mode, list[bytes]]] = {}
    for number, old in enumerate(olds):
        for name, mode, items in old.lists:
            first_mode, pool = pooled.setdefault(name, (mode, []))
            _same(name, first_mode, mode)
            if mode is Mode.UNION or len(olds) != parallelism or number == subtask:
                pool.extend(items)
    dealt = slice(None) if len(olds) == parallelism else slice(subtask, None, parallelism)
    return Contents(
        tuple(
            (name, mode, tuple(pool if mode is Mode.UNION else pool[dealt]))
            for name, (mode, pool) in sorted(pooled.items())
        )
    )


class OperatorState:
    """The lists of one subtask.

    Args:
        restored: see ``redistribute``.
        declared: called with the name and the codec of each requested list; may refuse it.
    """

    def __init__(
        self,
        restored: Contents = Contents(),
        declared: Callable[[str, Codec[Any]], None] = lambda name, codec: None,
    ) -> None:
        self._declared = declared
        self._lists = {name: (mode, list(items)) for name, mode, items in restored.lists}
        self._unclaimed = set(self._lists)

    def list(self, name: str, codec: Codec[T], mode: Mode = Mode.SPLIT) -> OperatorList[T]:
        """The list of this name, empty if it is new.

        Raises ConfigError if it was restored with another mode.
        """
        self._declared(name, codec)
        self._unclaimed.discard(name)
        first_mode, items = self._lists.setdefault(name, (mode, []))
        _same(name, first_mode, mode)
        return OperatorList(items, codec)

    def unclaimed(self) -> Sequence[str]:
        """Restored and not requested, sorted."""
        return sorted(self._unclaimed)

    def drop(self, name: str) -> None:
        """Drop an unclaimed list."""
        self._unclaimed.remove(name)
        del self._lists[name]

    def snapshot(self) -> Contents:
        """The logical copy."""
        return Contents(
            tuple((name, mode, tuple(i)) for name, (mode, i) in sorted(self._lists.items()))
        )


class OperatorList(Generic[T]):
    """One list; use ``OperatorState.list``."""

    def __init__(self, items: list[bytes], codec: Codec[T]) -> None:
        self._items = items
        self._codec = codec

    def get(self) -> list[T]:
        return [self._codec.decode(item) for item in self._items]

    def put(self, values: Iterable[T]) -> None:
        """Replace the list."""
        self._items[:] = [self._codec.encode(value) for value in values]

    def add(self, value: T) -> None:
        self._items.append(self._codec.encode(value))


def _same(name: str, first_mode: Mode, mode: Mode) -> None:
    if first_mode is not mode:
        raise ConfigError(
            f"The operator state {name!r} is {first_mode}, and is used as {mode}.",
            remedy="use it as it was, or give the list another name.",
        )
