"""How a typed column of a file is carried, see ``families``: nested values become JSON text."""

from __future__ import annotations

from duckdb.sqltypes import DuckDBPyType

from abs_audit.families import NESTED, Family, type_of


def carried(name: str, given: DuckDBPyType) -> str:
    """duckdb's expression for column ``name`` of type ``given``."""
    column = quoted(name)
    known = type_of(given)
    if known is not None and known.family in NESTED:
        return f"cast(to_json({_readable(column, given, 0)}) as varchar)"
    if known is not None and known.family is Family.INTERVAL:
        return _INTERVAL.format(c=column)
    return column


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_INTERVAL = (
    "(datepart('year', {c}) * 12 + datepart('month', {c})) || ' ' || datepart('day', {c}) || ' ' || "
    "((datepart('hour', {c}) * 60 + datepart('minute', {c})) * 60000000 "
    "+ datepart('microseconds', {c}))"
)


def _readable(value: str, given: DuckDBPyType, depth: int) -> str:
    """The nested value with bytes as ``\\x`` and hexadecimal digits, as PostgreSQL writes them."""
    item = f"item{depth}"
    if given.id == "blob":
        return rf"'\x' || lower(hex({value}))"
    if not _has_bytes(given):
        return value
    if given.id in ("list", "array"):
        made = _readable(item, _children(given)[0][1], depth + 1)
        return f"list_transform({value}, lambda {item}: {made})"
    if given.id == "map":
        (_, key), (_, inner) = _children(given)
        made = (
            f"{{'key': {_readable(f'{item}.key', key, depth + 1)}, "
            f"'value': {_readable(f'{item}.value', inner, depth + 1)}}}"
        )
        entries = f"list_transform(map_entries({value}), lambda {item}: {made})"
        return f"case when {value} is not null then map_from_entries({entries}) end"
    fields = ", ".join(
        f"{quoted(name)} := {_readable(f'{value}.{quoted(name)}', inner, depth)}"
        for name, inner in _children(given)
    )
    return f"case when {value} is not null then struct_pack({fields}) end"


def _has_bytes(given: DuckDBPyType) -> bool:
    return given.id == "blob" or any(_has_bytes(inner) for _, inner in _children(given))


def _children(given: DuckDBPyType) -> list[tuple[str, DuckDBPyType]]:
    """Of a nested type; none for the others. An array's length is no child."""
    if given.id not in ("list", "array", "map", "struct"):
        return []
    return [(name, inner) for name, inner in given.children if isinstance(inner, DuckDBPyType)]
