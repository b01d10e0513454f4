"""Which schema of the registry a column is written with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from abs_clients.arrow import is_list, plain_type, type_name
from abs_clients.avro.registry import Registry, registry
from abs_clients.avro.schema import Node, parsed
from abs_core.errors import SchemaError
from abs_core.patience import Patience
from abs_sinks.kafka.avro.encode import check_fit
from abs_sinks.kafka.keys import KEY
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.refusals import MisfitError

T = TypeVar("T")

Ids = Mapping[str, int]
"""The schema's id of each column."""


class Chooser:
    """Chooses the schemas of a sink's columns, and tells whether one fits.

    Args:
        types: of the columns that are encoded.
    """

    def __init__(self, options: KafkaOptions, types: Mapping[str, pa.DataType]) -> None:
        self._options = options
        self._types = types
        self._patience = Patience(
            options.common.patience, system=f"the schema registry at {options.registry.url}"
        )

    @property
    def _registry(self) -> Registry:
        return registry(self._options.registry)

    def node(self, number: int) -> Node:
        """The schema of an id."""
        return self._ask(partial(self._registry.node, number))

    def check(self, ids: Ids) -> None:
        """Raise SchemaError if a schema does not fit its column."""
        for column, number in ids.items():
            self._check(self.node(number), column, f"schema {number}")

    def forget(self) -> None:
        """Ask the registry anew: a schema may have been deleted, or the registry built again."""
        self._registry.forget()

    def ids(self, *, register: bool, key: int | None = None) -> Ids:
        """What the registry has now.

        Args:
            register: whether a missing schema may be registered; else it is an error.
            key: the id for the keys, whatever is newer.

        Raises:
            SchemaError: there is no such schema, or it does not fit.
            TargetError: the registry does not answer, or refuses.
        """
        return {
            column: key
            if key is not None and column == KEY
            else self.id_of(column, register=register)
            for column in self._types
        }

    def id_of(self, column: str, *, register: bool) -> int:
        """As ``ids``, of one column."""
        formats = self._options.formats
        subject = formats.subject(column, self._options.topic)
        text = formats.schema(column)
        latest = self._ask(partial(self._registry.latest, subject))
        if text is None:
            if latest is not None and (not register or self._fits(latest.node, column)):
                place = f"version {latest.version} of {subject} (schema {latest.id})"
                self._check(latest.node, column, place)
                return latest.id
            text = self._derived(column, None if latest is None else latest.node)
        else:
            self._check(parsed(text), column, f"{column}.schema")
            if latest is not None and latest.node == parsed(text):
                return latest.id  # some registries look for the very text only
            number = self._ask(partial(self._registry.lookup, subject, text))
            if number is not None:
                return number
        if not register:
            raise SchemaError(
                f"The registry at {self._options.registry.url} has no such schema under {subject}.",
                remedy=f"register it there, or set registry.register=true: {text}",
            )
        return self._ask(partial(self._registry.register, subject, text))

    def _derived(self, column: str, before: Node | None) -> str:
        """A schema of the column's type, under the name that its record has so far."""
        name = re.sub(r"\W", "_", f"{self._options.topic}_{column}", flags=re.ASCII)
        name = name if not name[0].isdigit() else f"_{name}"
        name = before.name if before is not None and before.kind == "record" else name
        try:
            return json.dumps(avro_of(self._types[column], name, column))
        except MisfitError as error:
            raise SchemaError(f"{error.reason}.", remedy=f"{error.remedy}.") from error

    def _fits(self, node: Node, column: str) -> bool:
        try:
            check_fit(node, self._types[column], column)
        except MisfitError:
            return False
        return True

    def _check(self, node: Node, column: str, schema_name: str) -> None:
        try:
            check_fit(node, self._types[column], column)
        except MisfitError as error:
            raise SchemaError(
                f"The column {column} cannot be written with {schema_name}: {error.reason}.",
                remedy=f"{error.remedy}.",
            ) from error

    def _ask(self, call: Callable[[], T]) -> T:
        return self._patience.retry(call)


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.time64("us"): {"type": "long", "logicalType": "time-micros"},
    pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
    pa.duration("us"): "long",
    pa.null(): "null",
}


def avro_of(arrow: pa.DataType, name: str, path: str, used: set[str] | None = None) -> Any:
    """The schema, as JSON has it.

    Args:
        name: of a record at the top, with its namespace; records inside add their path to it.
        path: of the column, for messages.
        used: names of records so far.

    Raises:
        MisfitError: Avro has no such type, or a field's name is none of Avro's.
    """
    plain = plain_type(arrow)
    used = set() if used is None else used
    if plain in _PLAIN:
        return _PLAIN[plain]
    if pa.types.is_decimal128(plain):
        digits, scale = plain.precision, plain.scale
        return {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": scale}
    if is_list(plain):
        return {"type": "array", "items": _optional(plain.value_type, name, f"{path}[]", used)}
    if pa.types.is_map(plain) and pa.types.is_string(plain.key_type):
        return {"type": "map", "values": _optional(plain.item_type, name, f"{path}{{}}", used)}
    if pa.types.is_struct(plain):
        while name in used:  # a.b beside a_b
            name = f"{name}_"
        used.add(name)
        fields = []
        for field in plain:
            at = f"{path}.{field.name}"
            if _NAME.fullmatch(field.name) is None:
                raise MisfitError(
                    f"{at} is no name of Avro's",
                    "rename it with letters, digits and underscores",
                )
            kind = _optional(field.type, f"{name}_{field.name}", at, used)
            fields.append({"name": field.name, "type": kind, "default": None})
        return {"type": "record", "name": name, "fields": fields}
    raise MisfitError(
        f"{path} is {type_name(arrow)}, for which Avro has no type", "cast or drop it in Spark"
    )


def _optional(arrow: pa.DataType, name: str, path: str, used: set[str]) -> Any:
    inner = avro_of(arrow, name, path, used)
    return inner if inner == "null" else ["null", inner]
