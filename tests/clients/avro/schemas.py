"""Avro schemas and values of them, drawn by hypothesis, and values as fastavro has them."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from abs_clients.avro.schema import Node, member, widened

Schema = Any

_LEAVES: list[Schema] = [
    "null",
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
]


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3, numbers: list[int] | None = None) -> Schema:
    """Any schema, as JSON; names are unique."""
    numbers = [0] if numbers is None else numbers

    def name() -> str:
        numbers[0] += 1
        return f"n{numbers[0]}"

    kinds = ["leaf", "leaf", "enum", "fixed", "fixed decimal"]
    kinds += ["record", "array", "map", "union", "optional", "single"] if depth else []
    kind = draw(st.sampled_from(kinds))
    inner = schemas(depth - 1, numbers)
    match kind:
        case "leaf":
            return draw(st.sampled_from(_LEAVES))
        case "enum":
            return {"type": "enum", "name": name(), "symbols": ["A", "B", "C"]}
        case "fixed":
            return {"type": "fixed", "name": name(), "size": draw(st.integers(0, 9))}
        case "fixed decimal":
            logical = {"logicalType": "decimal", "precision": 9, "scale": 2}
            return {
                "type": "fixed",
                "name": name(),
                "size": draw(st.sampled_from([4, 16, 20])),
                **logical,
            }
        case "record":
            fields = [
                {"name": f"f{n}", "type": draw(inner)} for n in range(draw(st.integers(0, 4)))
            ]
            return {"type": "record", "name": f"a.b.{name()}", "fields": fields}
        case "array":
            return {"type": "array", "items": draw(inner)}
        case "map":
            return {"type": "map", "values": draw(inner)}
        case "optional" | "single":
            one = draw(inner.filter(lambda found: found != "null" and not isinstance(found, list)))
            if kind == "single":
                return [one]
            return draw(st.sampled_from([["null", one], [one, "null"]]))
    # Types of which Avro may have only one in a union, or which have names.
    enum = {"type": "enum", "name": name(), "symbols": ["X", "Y"]}
    record = {"type": "record", "name": name(), "fields": [{"name": "of", "type": draw(inner)}]}
    several = st.lists(
        st.sampled_from(["null", "boolean", "int", "long", "double", "string", enum, record]),
        min_size=2,
        max_size=5,
        unique_by=str,
    )
    return draw(several)


def records() -> st.SearchStrategy[Schema]:
    """Records, with the schemas as their fields."""
    return schemas().map(
        lambda found: {
            "type": "record",
            "name": "shop.Top",
            "fields": [{"name": "x", "type": found}, {"name": "id", "type": "long"}],
        }
    )


_SHORT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
_INT32, _INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
_LONG = st.one_of(_INT64, st.integers(-200, 200))
_TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))  # noqa: DTZ001 - wall clocks
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.one_of(_INT32, st.integers(-200, 200)),
    "long": _LONG,
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=9),
    "string": st.one_of(_SHORT, st.sampled_from(["x" * 70, "\u00e9" * 9000])),
    "uuid": st.uuids().map(str),
    "date": st.dates(date(1, 1, 1), date(9999, 1, 1)),
    "time-millis": st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    "time-micros": st.times(),
    "timestamp-millis": _TIMES.map(lambda t: t.replace(microsecond=5000, tzinfo=UTC)),
    "timestamp-micros": _TIMES.map(lambda t: t.replace(tzinfo=UTC)),
    "local-timestamp-millis": _TIMES.map(lambda t: t.replace(microsecond=7000)),
    "local-timestamp-micros": _TIMES,
}


def values(node: Node) -> st.SearchStrategy[Any]:
    """Values of a schema, as Arrow has them."""
    match node.kind:
        case "union":
            one = widened(node)
            if one is not None:
                found = values(one) if not widest(node) else values(Node(node.branches[0].kind))
                return st.one_of(st.none(), found) if node.takes_null else found
            parts = [
                st.fixed_dictionaries({member(n): values(each)})
                for n, each in enumerate(node.branches)
            ]
            return st.one_of(*parts, *([st.none()] if node.takes_null else []))
        case "record":
            return st.fixed_dictionaries({f.name: values(f.node) for f in node.fields})
        case "array":
            return st.lists(values(node.inner[0]), max_size=4)
        case "map":
            pairs = st.dictionaries(_SHORT, values(node.inner[0]), max_size=3)
            return pairs.map(lambda found: list(found.items()))
        case "enum":
            return st.sampled_from(node.symbols)
    if node.logical == "decimal":
        most = 10 ** min(node.precision, 9) - 1
        return st.integers(-most, most).map(lambda n: Decimal(n).scaleb(-node.scale))
    if node.kind == "fixed":
        return st.binary(min_size=node.size, max_size=node.size)
    return _VALUES[node.logical or node.kind]


def widest(node: Node) -> bool:
    """Whether a union's values have one type, and several in Avro."""
    return len(node.branches) > 1


def as_fastavro(node: Node, value: Any) -> Any:
    """A value of Arrow as fastavro reads it."""
    match node.kind:
        case "union":
            if value is None:
                return None
            if widened(node) is not None:
                return as_fastavro(node.branches[0], value)
            [at] = [n for n, each in enumerate(value.values()) if each is not None]
            return as_fastavro(node.branches[at], value[member(at)])
        case "record":
            return {f.name: as_fastavro(f.node, value[f.name]) for f in node.fields}
        case "array":
            return [as_fastavro(node.inner[0], each) for each in value]
        case "map":
            return {key: as_fastavro(node.inner[0], each) for key, each in value}
    if node.logical == "uuid":
        return uuid.UUID(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def to_write(node: Node, value: Any) -> Any:
    """A value of Arrow as fastavro writes it: unions name their type."""
    match node.kind:
        case "union":
            if value is None:
                return None
            if (one := widened(node)) is not None:
                return _tagged(one, value)
            [at] = [n for n, each in enumerate(value.values()) if each is not None]
            return _tagged(node.branches[at], value[member(at)])
        case "record":
            return {f.name: to_write(f.node, value[f.name]) for f in node.fields}
        case "array":
            return [to_write(node.inner[0], each) for each in value]
        case "map":
            return {key: to_write(node.inner[0], each) for key, each in value}
    return value


def _tagged(branch: Node, value: Any) -> Any:
    # Always with its type: fastavro would look for it, and finds none for an enum's name further in.
    return (branch.name or branch.kind, to_write(branch, value))
