"""Matches the columns of both sides by name and by type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from abs_audit.families import Family, Type, meet
from abs_core.errors import OptionError, SchemaError


@dataclass(frozen=True, slots=True)
class Pair:
    """One compared column: its type on each side, and the common type for the comparison."""

    name: str
    actual_name: str
    expected: Type
    actual: Type
    common: Type


@dataclass(frozen=True, slots=True)
class Plan:
    """The compared columns, key first.

    Args:
        keys: number of leading pairs that are the key; 0: the whole record.
        left_out: unexpected columns of actual by which it is partitioned.
    """

    pairs: tuple[Pair, ...]
    keys: int
    left_out: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(pair.name for pair in self.pairs)

    @property
    def actual_names(self) -> tuple[str, ...]:
        return tuple(pair.actual_name for pair in self.pairs)

    @property
    def identity(self) -> tuple[str, ...]:
        """Names of the columns that identify a record."""
        return self.names[: self.keys] or self.names

    def widened(self, columns: Mapping[str, Type]) -> Plan:
        """This plan, with an identity that can be compared with these columns of other records.

        Raises:
            SchemaError: it cannot.
        """
        if not columns:
            return self
        wide = (_wider(pair, columns) for pair in self._identifying)
        return replace(self, pairs=(*wide, *self.pairs[len(self.identity) :]))

    def identity_in(self, columns: Mapping[str, Type]) -> Plan | None:
        """To read the identity alone from records with these columns; None where they have none."""
        if not columns:
            return None
        names = ((pair, _named(pair.name, columns, "epoch's")) for pair in self._identifying)
        return Plan(tuple(replace(p, name=n, expected=columns[n]) for p, n in names), 0)

    @property
    def _identifying(self) -> tuple[Pair, ...]:
        return self.pairs[: len(self.identity)]


def plan(
    expected: Mapping[str, Type],
    actual: Mapping[str, Type],
    *,
    key: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    declared: Mapping[str, Type] | None = None,
) -> Plan:
    """Match columns by exact name, else by the only name that differs in case.

    A side without columns is JSON without records: it gets the other side's columns. An unexpected
    column of actual by which it is partitioned is left out: the job derived it.

    Args:
        key: the identifying columns; empty: the whole record.
        columns: what to compare (the key is added); None: all, and both sides must have the same.
        declared: types of columns that have a type on neither side. An untyped side has these
            columns also if no record has a value for one: JSON writers leave out nulls.

    Raises:
        OptionError: a name is given twice, or there is no column to compare.
        SchemaError: a column is missing on a side, or its types cannot be compared by value.
    """
    for names in (key, columns or ()):
        if len(set(names)) != len(names):
            raise OptionError("A column is named twice.", remedy="name each column once.")
    declared = declared or {}
    expected, actual = _declared(expected, declared), _declared(actual, declared)
    expected, actual = _filled(expected, actual), _filled(actual, expected)
    keys, others = (
        [_named(name, expected, "expected") for name in chosen]
        for chosen in (key, expected if columns is None else columns)
    )
    wanted = [*keys, *(name for name in others if name not in keys)]
    derived: tuple[str, ...] = ()
    if columns is None:
        derived = tuple(n for n, kind in actual.items() if kind.folder and not _has(expected, n))
        actual = {name: kind for name, kind in actual.items() if name not in derived}
        _require_no_more(wanted, actual)
    if not wanted:
        raise OptionError("There is no column to compare.", remedy="name one with `columns`.")
    pairs = []
    for name in wanted:
        there = _named(name, actual, "actual")
        pairs.append(_pair(name, there, expected[name], actual[there], declared))
    return Plan(tuple(pairs), len(keys), derived)


def _declared(columns: Mapping[str, Type], declared: Mapping[str, Type]) -> Mapping[str, Type]:
    """The columns of an untyped side, completed by the declared ones."""
    if any(kind.family is not Family.UNTYPED for kind in columns.values()):
        return columns
    more = {name: Type(Family.UNTYPED) for name in declared if not _has(columns, name)}
    return {**columns, **more}


def _has(columns: Mapping[str, Type], name: str) -> bool:
    return any(one.lower() == name.lower() for one in columns)


def _filled(columns: Mapping[str, Type], other: Mapping[str, Type]) -> Mapping[str, Type]:
    return columns or dict.fromkeys(other, Type(Family.UNTYPED))


def _named(name: str, columns: Mapping[str, Type], side: str) -> str:
    """The column of that name, resolved as in Spark and the sinks."""
    alike = [name] if name in columns else [c for c in columns if c.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    raise SchemaError(
        f"The {side} records have {len(alike) or 'no'} column(s) {name!r}; they have "
        f"{', '.join(map(repr, columns))}.",
        remedy="correct the name, or name the columns to compare with `columns`.",
    )


def _require_no_more(wanted: Sequence[str], actual: Mapping[str, Type]) -> None:
    matched = {_named(name, actual, "actual") for name in wanted}
    more = [name for name in actual if name not in matched]
    if more or len(matched) != len(wanted):
        raise SchemaError(
            f"The actual records have columns that are not expected: {', '.join(more)}.",
            remedy="name the columns to compare with `columns`; other columns are not audited.",
        )


def _pair(
    name: str, actual_name: str, expected: Type, actual: Type, declared: Mapping[str, Type]
) -> Pair:
    common = meet(expected, actual)
    declared_type = next((declared[one] for one in declared if one.lower() == name.lower()), None)
    if declared_type is not None and expected.family is actual.family is Family.UNTYPED:
        # Bytes have no one text form: those of both sides are compared as they are written.
        common = meet(expected, declared_type) or Type(Family.TEXT)
    if common is None:
        raise _incomparable(name, expected, f"{actual} in actual")
    return Pair(name, actual_name, expected, actual, common)


def _wider(pair: Pair, columns: Mapping[str, Type]) -> Pair:
    kind = columns[_named(pair.name, columns, "epoch's")]
    common = meet(pair.common, kind)
    if common is None:
        raise _incomparable(pair.name, pair.expected, f"{kind} in the epoch's records")
    return replace(pair, common=common)


def _incomparable(name: str, expected: Type, there: str) -> SchemaError:
    return SchemaError(
        f"Column {name!r} is {expected} in expected and {there}; values of these types cannot be "
        "compared.",
        remedy="omit the column, or use a view or file that converts it as one side.",
    )
