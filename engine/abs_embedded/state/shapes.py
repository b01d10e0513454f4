"""What all backends have in common: the names and shapes of their states, declared or restored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from abs_core.errors import ConfigError
from abs_embedded.state.contracts import SnapshotStore, StateOwner

_NESTED = ("map", "list", "timers")
"""Kinds that have sub-keys; the kind is the shape's first word."""
_NUMBERS = ("value:int64", "value:float64")


def nests(shape: str) -> bool:
    """Whether states of this shape have sub-keys."""
    return _kind(shape) in _NESTED


def _kind(shape: str) -> str:
    return shape.split(":")[0]


class Shaped:
    """Base of a ``StateBackend``; refuses a state whose shape has changed."""

    def __init__(self, store: SnapshotStore, place: StateOwner) -> None:
        self.store = store
        self.place = place
        self.committed: int | None = -1
        self._shapes: dict[str, str] = {}
        self._unclaimed: set[str] = set()

    def declare(self, name: str, shape: str) -> None:
        """Raises ``ConfigError`` if the name has another shape."""
        self._unclaimed.discard(name)
        first_shape = self._shapes.setdefault(name, shape)
        if first_shape != shape:
            raise ConfigError(
                f"The state {name!r} was kept as {first_shape!r}, and is declared as {shape!r}.",
                remedy="declare it as it was, or give the new state another name.",
            )

    def declare_restored(self, states: Iterable[tuple[str, str]]) -> None:
        for name, shape in states:
            self.declare(name, shape)
            self._unclaimed.add(name)

    def unclaimed(self) -> Sequence[str]:
        return sorted(self._unclaimed)

    def forget(self, name: str) -> None:
        """Raises ``ConfigError`` if the name is in use."""
        if name not in self._unclaimed:
            raise ConfigError(
                f"The state {name!r} cannot be dropped: the operator uses it, or there is none.",
                remedy="drop only states that `unclaimed` names.",
            )
        self._unclaimed.discard(name)
        del self._shapes[name]

    def is_nested(self, name: str) -> bool:
        return nests(self._shapes[name])

    def is_of_numbers(self, name: str) -> bool:
        """Whether each value is eight bytes."""
        return self._shapes[name] in _NUMBERS

    def states(self) -> Sequence[tuple[str, str]]:
        return sorted(self._shapes.items())

    def check_query(self, name: str) -> None:
        """Raises ``ConfigError`` if the name is not a table's."""
        tables = sorted(one for one, shape in self._shapes.items() if not nests(shape))
        if name not in tables:
            others = [f"{one} ({_kind(shape)})" for one, shape in self.states() if nests(shape)]
            choice = f"choose one of {', '.join(tables)}." if tables else "there is none here."
            raise ConfigError(
                f"There is no value or reducing state {name!r} to query.",
                remedy=f"{choice} Maps, lists and timers cannot be queried: "
                f"{', '.join(others) or '-'}; an operator on windows keeps a map.",
            )
