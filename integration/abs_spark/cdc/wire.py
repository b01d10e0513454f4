"""How a value of an event is sent: its type in Kafka Connect, and what the type means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
BITS = "io.debezium.data.Bits"
POINT = "io.debezium.data.geometry.Point"
GEOMETRY = "io.debezium.data.geometry.Geometry"
GEOGRAPHY = "io.debezium.data.geometry.Geography"
JSON = "io.debezium.data.Json"
CONNECT_TIME = "org.apache.kafka.connect.data.Time"
CONNECT_TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
CONNECT_DATE = "org.apache.kafka.connect.data.Date"
DATE, ISO_DATE = "io.debezium.time.Date", "io.debezium.time.IsoDate"
ISO_TIME, ISO_TIMESTAMP = "io.debezium.time.IsoTime", "io.debezium.time.IsoTimestamp"
ZONED_TIME = "io.debezium.time.ZonedTime"
ZONED_TIMESTAMP = "io.debezium.time.ZonedTimestamp"
DURATION, INTERVAL = "io.debezium.time.MicroDuration", "io.debezium.time.Interval"

MICROS = ("unit", "micros")
"""The parameter of a type of Kafka Connect whose numbers were made microseconds when they were read."""


@dataclass(frozen=True, slots=True)
class Wire:
    """The type of a value as it is sent, as Kafka Connect's schemas have it.

    Args:
        type: boolean, int8 to int64, float, double, string, bytes, array, map or struct.
        name: what it means (``io.debezium.time.Date``); empty: nothing beyond its type.
        items: of an array.
    """

    type: str
    name: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    items: Wire | None = None

    @property
    def shown(self) -> str:
        """For messages."""
        inner = f" of {self.items.shown}" if self.items is not None else ""
        return f"{self.type}{inner} ({self.name})" if self.name else f"{self.type}{inner}"

    def number(self, parameter: str) -> int | None:
        """A parameter that is a whole number; None where it is none."""
        text = dict(self.parameters).get(parameter, "")
        return int(text) if text.lstrip("-").isdigit() else None


def wire(schema: Mapping[str, Any]) -> Wire:
    """The type of a schema of Kafka Connect, as its JSON converter writes it.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: it is no such schema.
    """
    parameters = tuple(
        sorted((str(k), str(v)) for k, v in (schema.get("parameters") or {}).items())
    )
    items = wire(schema["items"]) if schema["type"] == "array" else None
    return Wire(str(schema["type"]), str(schema.get("name") or ""), parameters, items)


def row_wires(schema: Mapping[str, Any]) -> dict[str, Wire]:
    """The types of a row's columns, from the schema of an event.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: it is no schema of Debezium's events.
    """
    images = {field["field"]: field for field in schema["fields"]}
    return {field["field"]: wire(field) for field in images["after"]["fields"]}
