"""Avro schemas as trees, and the Arrow types of their values.

fastavro checks the texts and resolves names; a schema that contains itself is refused, since no column
can hold its values. Logical types that are not known here are ignored, as Avro's specification says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pyarrow as pa

from abs_clients.arrow import MAX_DECIMAL_DIGITS
from abs_core.errors import SchemaError

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")

_LOGICAL = {
    "int": ("date", "time-millis"),
    "long": (
        "time-micros",
        "timestamp-millis",
        "timestamp-micros",
        "local-timestamp-millis",
        "local-timestamp-micros",
    ),
    "string": ("uuid",),
    "bytes": ("decimal",),
    "fixed": ("decimal",),
}
"""The logical types that are known, by the type that they are written as."""

DAY_MICROS = 86_400_000_000

STUMBLES = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What a malformed schema or default makes Python raise."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record.

    Args:
        default: of a reader whose writer has no such field, as JSON; see ``has_default``.
    """

    name: str
    node: Node
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class Node:
    """One type of a schema.

    Args:
        kind: one of ``PRIMITIVES``, or record, enum, array, map, fixed, union.
        name: of a record, enum or fixed, with its namespace.
        logical: a logical type that is known; else None.
        inner: the items of an array, the values of a map, the branches of a union.
        default: the symbol that a reader takes for one that it does not know.
        semantic: what Kafka Connect's values of it mean (``io.debezium.time.Date``), if it wrote the
            schema.
        parameters: of ``semantic``.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    default: str | None = None
    fields: tuple[Field, ...] = ()
    inner: tuple[Node, ...] = ()
    semantic: str = ""
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def shown(self) -> str:
        """For messages."""
        named = f"{self.kind} {self.name}" if self.name else self.kind
        if self.logical == "decimal":
            return f"{named} (decimal({self.precision}, {self.scale}))"
        means = self.logical or self.semantic
        return f"{named} ({means})" if means else named

    @property
    def branches(self) -> tuple[Node, ...]:
        """A union's types without null; the type itself of any other."""
        if self.kind != "union":
            return (self,)
        return tuple(branch for branch in self.inner if branch.kind != "null")

    @property
    def takes_null(self) -> bool:
        """Whether null is one of its values."""
        if self.kind == "union":
            return any(branch.kind == "null" for branch in self.inner)
        return self.kind == "null"


def fingerprint(node: Node) -> str:
    """A digest of all that decides what bytes a value has; it is kept in registers: never change it."""
    return hashlib.sha256(json.dumps(_form(node)).encode()).hexdigest()


def _form(node: Node) -> list[Any]:
    fields = [[f.name, _form(f.node), f.has_default, f.default] for f in node.fields]
    plain = [node.kind, node.name, node.logical, node.precision, node.scale, node.size]
    return [*plain, node.symbols, fields, [_form(inner) for inner in node.inner]]


@cache
def parsed(text: str, references: tuple[str, ...] = ()) -> Node:
    """The schema of a JSON text.

    Args:
        references: texts of the schemas whose names it uses, each after those that it uses itself.

    Raises:
        SchemaError: it is no Avro schema, or contains itself.
    """
    import fastavro.schema as library  # of the extra avro; other jobs do without

    named: dict[str, Any] = {}
    own = (library.SchemaParseException, library.UnknownType)
    try:
        for reference in references:
            library.parse_schema(_lenient(json.loads(reference)), named, _write_hint=False)
        raw = library.parse_schema(_lenient(json.loads(text)), named, _write_hint=False)
    except (*own, *STUMBLES) as error:
        # Of a malformed text fastavro raises also those that are not its own.
        raise SchemaError(
            f"An Avro schema cannot be read: {type(error).__name__}: {error}. It is {cut(text)}",
            remedy="correct it, or what it refers to.",
        ) from error
    return _node(raw, named, ())


def _lenient(raw: Any) -> Any:
    """The schema without decimals that are none: Avro ignores these, and fastavro refuses them."""
    if isinstance(raw, list):
        return [_lenient(part) for part in raw]
    if not isinstance(raw, dict):
        return raw
    inner = ("type", "items", "values", "fields")
    raw = {name: _lenient(part) if name in inner else part for name, part in raw.items()}
    if raw.get("logicalType") == "decimal" and not _is_decimal(raw, raw.get("size")):
        del raw["logicalType"]
    return raw


def _is_decimal(raw: Mapping[str, Any], size: Any) -> bool:
    """Whether precision and scale make a decimal; ``size`` is that of a fixed."""
    precision, scale = raw.get("precision"), raw.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision > 0:
        return False
    return type(size) is not int or 10**precision <= 2 ** (8 * size - 1) if size else size is None


def cut(text: str) -> str:
    """A text for a message."""
    return text if len(text) <= 500 else f"{text[:500]}..."


def _node(raw: Any, named: Mapping[str, Any], within: tuple[str, ...]) -> Node:
    if isinstance(raw, list):
        return Node("union", inner=tuple(_node(branch, named, within) for branch in raw))
    if isinstance(raw, str):
        if raw in PRIMITIVES:
            return Node(raw)
        raw = named[raw]
    kind, name = raw["type"], raw.get("name", "")
    if name in within:
        raise SchemaError(
            f"The Avro schema {name} contains itself, and a column cannot.",
            remedy="use the bytes of such records (format bytes), and decode them in the job.",
        )
    if name:
        within = (*within, name)
    node = Node(kind, name, _aliases(raw, name), **_semantic(raw))
    match kind:
        case "record" | "error":
            fields = tuple(_field(field, named, within) for field in raw["fields"])
            return replace(node, kind="record", fields=fields)
        case "enum":
            return replace(node, symbols=tuple(raw["symbols"]), default=raw.get("default"))
        case "array":
            return replace(node, inner=(_node(raw["items"], named, within),))
        case "map":
            return replace(node, inner=(_node(raw["values"], named, within),))
    if not isinstance(kind, str) or kind not in (*PRIMITIVES, "fixed"):
        return _node(kind, named, within)  # a type in a type
    return _with_logical(replace(node, size=raw.get("size", 0)), raw)


def _semantic(raw: Mapping[str, Any]) -> dict[str, Any]:
    parameters = raw.get("connect.parameters") or {}
    return {
        "semantic": str(raw.get("connect.name") or ""),
        "parameters": tuple(sorted((str(k), str(v)) for k, v in parameters.items())),
    }


def _with_logical(node: Node, raw: Mapping[str, Any]) -> Node:
    logical = raw.get("logicalType")
    if logical not in _LOGICAL.get(node.kind, ()):
        return node
    if logical != "decimal":
        return replace(node, logical=logical)
    if not _is_decimal(raw, node.size if node.kind == "fixed" else None):
        return node  # as the specification has it for a logical type that is none
    return replace(node, logical=logical, precision=raw["precision"], scale=raw.get("scale", 0))


def _aliases(raw: Mapping[str, Any], name: str) -> tuple[str, ...]:
    space = name.rpartition(".")[0]
    full = (alias if "." in alias or not space else f"{space}.{alias}" for alias in _listed(raw))
    return tuple(full)


def _listed(raw: Mapping[str, Any]) -> Sequence[str]:
    aliases: Sequence[str] = raw.get("aliases") or ()
    return aliases


def _field(raw: Mapping[str, Any], named: Mapping[str, Any], within: tuple[str, ...]) -> Field:
    node = _node(raw["type"], named, within)
    return Field(raw["name"], node, tuple(_listed(raw)), "default" in raw, raw.get("default"))


WIDENED = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}
"""Unions whose values have one type in Spark."""


def widened(node: Node) -> Node | None:
    """The one type that holds all of a union's values; None if they are members of a struct."""
    branches = node.branches
    if len(branches) == 1:
        return branches[0]
    if not branches:
        return Node("null")
    plain = all(branch.logical is None for branch in branches)
    kind = WIDENED.get(frozenset(branch.kind for branch in branches)) if plain else None
    return None if kind is None else Node(kind)


def arrow_type(node: Node, path: str = "value") -> pa.DataType:
    """The Arrow type of a schema's values, as Spark's ``from_avro`` has it.

    A union of several types is a struct with a field for each: ``member0``, ``member1``, ...

    Args:
        path: where it is, for messages.

    Raises:
        SchemaError: no column holds such values.
    """
    if node.kind == "union":
        one = widened(node)
        if one is not None:
            return arrow_type(one, path)
        members = enumerate(node.branches)
        return pa.struct([(member(n), arrow_type(b, f"{path}.{member(n)}")) for n, b in members])
    if node.kind == "record":
        _check_names(node, path)
        return pa.struct([(f.name, arrow_type(f.node, f"{path}.{f.name}")) for f in node.fields])
    if node.kind == "array":
        return pa.list_(arrow_type(node.inner[0], f"{path}[]"))
    if node.kind == "map":
        return pa.map_(pa.string(), arrow_type(node.inner[0], f"{path}{{}}"))
    if node.logical == "decimal":
        if node.precision > MAX_DECIMAL_DIGITS and node.semantic:
            return pa.binary()  # Kafka Connect's bytes, whose scale is in the parameters
        if node.precision > MAX_DECIMAL_DIGITS:
            raise SchemaError(
                f"{path} is a decimal of {node.precision} digits; Spark has {MAX_DECIMAL_DIGITS}.",
                remedy="read with a schema that has fewer, or none of that field.",
            )
        return pa.decimal128(node.precision, node.scale)
    return _ARROW[node.logical or node.kind]


def member(number: int) -> str:
    """The name of a union's type in a struct, as Spark has it."""
    return f"member{number}"


_ARROW: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "uuid": pa.string(),
    "enum": pa.string(),
    "date": pa.date32(),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}


def _check_names(node: Node, path: str) -> None:
    names = [field.name.lower() for field in node.fields]
    if len(set(names)) < len(names):
        raise SchemaError(
            f"{path}: the fields of {node.name} differ only by the case of their letters.",
            remedy="rename one of them; columns of Spark are found without regard to case.",
        )
