"""What sinks that apply changes share: which changes delete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from abs_core.errors import OptionError


@dataclass(frozen=True, slots=True)
class Deletes:
    """Which changes delete: those with one of these values in the column; without values: with true."""

    column: str
    values: tuple[str, ...] = ()

    @classmethod
    def parse(cls, given: str, columns: Callable[[str], tuple[str, ...]]) -> Self:
        """Read ``column`` or ``column=value,value``.

        Args:
            columns: reads a list of columns.

        Raises:
            OptionError: not of this form.
        """
        name, equals, values = given.partition("=")
        named = columns(name)
        listed = tuple(value.strip() for value in values.split(",")) if equals else ()
        if len(named) > 1 or "" in listed:
            raise OptionError(
                f"applyasdeletes={given} is not a column, or a column and its values.",
                remedy="write is_deleted (a boolean column), or op=d, or op=d,D.",
            )
        return cls(named[0], listed)

    def __str__(self) -> str:
        return f"{self.column}={','.join(self.values)}" if self.values else self.column


DELETES = Deletes("op", ("d",))
"""Debezium's."""
