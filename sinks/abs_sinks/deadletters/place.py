"""The dead letters that a place holds: listed, shown, and written again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import Any

import pyarrow as pa

from abs_core.errors import CorruptionError, DataError, OptionError
from abs_sinks.deadletters.letter import schema_of
from abs_sinks.deadletters.row import rows_of

_NAMED = 10
"""Letters that an error names."""

Group = tuple[list[dict[str, Any]], pa.RecordBatch]
"""Letters whose rows have the same columns, and these rows."""


def readable(letters: Sequence[dict[str, Any]]) -> tuple[list[Group], dict[Any, str]]:
    """The letters (``KeptLetters.shown``) whose rows can be read, and why others cannot, by id."""
    by_schema: dict[tuple[str, str], list[tuple[dict[str, Any], pa.RecordBatch]]] = {}
    unread: dict[Any, str] = {}
    for letter in letters:
        try:
            row = rows_of([letter["row"]], _schema_of(letter))
        except CorruptionError as error:
            unread[letter["id"]] = error.what
            continue
        if not row.schema.names:
            unread[letter["id"]] = "It shows no column of its row (option deadlettercolumns)."
        else:
            # Of a type that Arrow cannot always make, rows may be read in two (see ``rows_of``).
            of = (letter["schema"], row.schema.to_string())
            by_schema.setdefault(of, []).append((letter, row))
    groups: list[Group] = []
    for group in by_schema.values():
        try:
            rows = pa.Table.from_batches([row for _, row in group]).combine_chunks().to_batches()
            groups.append(([letter for letter, _ in group], rows[0]))
        except pa.ArrowException:  # Arrow 26 joins no dictionaries that hold a null
            groups += [([letter], row) for letter, row in group]
    return groups, unread


def of_target(
    letters: Sequence[dict[str, Any]], target: Callable[[], str], refused_by: str | None
) -> Sequence[dict[str, Any]]:
    """The letters themselves, which were refused by the target that their rows are written to.

    Args:
        target: what its dead letters have in the field ``sink``.
        refused_by: what these have there, where the user consents to write them elsewhere.

    Raises:
        OptionError: they are of several sinks, or of another one: its rows would be written to this
            target, and its letters marked as replayed.
    """
    by_sink: dict[str, list[str]] = {}
    for letter in letters:
        if letter["sink"] is not None:  # what cannot be read is named later
            by_sink.setdefault(letter["sink"], []).append(str(letter["id"]))
    if len(by_sink) > 1:
        named = "; ".join(
            f"{sink}: {', '.join(ids[:_NAMED])}{' ...' if len(ids) > _NAMED else ''}"
            for sink, ids in sorted(by_sink.items())
        )
        raise OptionError(
            f"The letters are of {len(by_sink)} sinks ({named}), and one call writes to one target. "
            "Nothing was written.",
            remedy="replay those of each sink by a call of its own, which names its target.",
        )
    for sink, ids in by_sink.items():
        if sink != (wanted := refused_by or target()):
            raise OptionError(
                f"The letters were refused by {sink} (the first is {ids[0]}), not by {wanted}. Nothing "
                "was written.",
                remedy="name the target that they were refused by; or, if their rows belong to the one "
                "that is named (a table has another name by now), consent: add --refused-by "
                f"{quote(sink)}.",
            )
    return letters


def not_shown(letter: Mapping[str, Any], columns: Sequence[str], remedy: str) -> DataError:
    """The error for a letter without these columns of its row: it would be written without them."""
    return DataError(
        f"Letter {letter['id']} does not show the columns {', '.join(columns)} (option "
        "deadlettercolumns): its row would be written without them. Nothing was written.",
        remedy=remedy,
    )


def tell_unread(unread: Mapping[Any, str], written: int) -> None:
    """Raise the error of a replay that left letters out, as their rows cannot be read.

    Raises:
        DataError: names each of them.
    """
    if unread:
        named = "; ".join(f"letter {id_}: {why}" for id_, why in list(unread.items())[:_NAMED])
        raise DataError(
            f"{len(unread)} dead letters cannot be read, and stay. {named} The other {written} were "
            "written and marked.",
            remedy="see what they hold (`abs deadletters show`), and write those rows by hand.",
        )


def _schema_of(letter: dict[str, Any]) -> pa.Schema:
    try:
        return schema_of(letter["schema"])
    except (ValueError, TypeError, pa.ArrowException, OSError) as error:
        raise CorruptionError(
            f"Its field schema cannot be read: {type(error).__name__}.",
            remedy="it was changed by hand, or is no dead letter.",
        ) from error


class KeptLetters(ABC):
    """The dead letters that one table, or the like, holds, for people and the command ``abs``."""

    @abstractmethod
    def found(
        self, *, job: str | None = None, code: str | None = None, replayed: bool = False
    ) -> list[dict[str, Any]]:
        """Those of a job or a code, by id, without rows; ``replayed``: also those written again."""

    @abstractmethod
    def shown(self, ids: Sequence[int | str]) -> list[dict[str, Any]]:
        """These with their rows."""

    @abstractmethod
    def replay(self, ids: Sequence[int | str], refused_by: str | None = None) -> int:
        """Write the rows of these through the sink and mark them; how many were not yet.

        Exactly once: rows and marks are under one decision.

        Args:
            refused_by: the field ``sink`` of these, if another target refused them: consent to write
                them to this one.

        Raises:
            OptionError: they are of several sinks, or of another target's.
            DataError, TargetError: a row is refused again; of those with its columns nothing is
                written, nothing marked. Or rows cannot be read: it names them; the others are written.
        """
