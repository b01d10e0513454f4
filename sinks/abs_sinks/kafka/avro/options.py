"""The options of a sink's records with a schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from abs_clients.avro.schema import parsed
from abs_clients.avro.settings import AVRO, BYTES, COLUMNS, avro_schema, format_name
from abs_clients.options import Option, Problems, boolean, fields_from

TOPIC, RECORD, TOPIC_RECORD = "topic", "record", "topic_record"
_STRATEGIES = {
    TOPIC: TOPIC,
    RECORD: RECORD,
    TOPIC_RECORD: TOPIC_RECORD,
    "topicnamestrategy": TOPIC,
    "recordnamestrategy": RECORD,
    "topicrecordnamestrategy": TOPIC_RECORD,
}


def strategy(given: str) -> str:
    """Which subject a schema has; Java's class names are taken, too."""
    name = _STRATEGIES.get(given.strip().lower().rpartition(".")[2])
    if name is None:
        raise ValueError(f"one of {TOPIC}, {RECORD}, {TOPIC_RECORD}")
    return name


@dataclass(frozen=True, slots=True)
class Formats:
    """How key and value are encoded.

    Args:
        value_schema, key_schema: to write with, as JSON; None: the subject's newest one, or, where
            ``register`` allows it, one that is made of the column's type.
        register: register a schema that the registry does not have.
    """

    value_format: Annotated[str, Option("value.format", format_name, BYTES)] = BYTES
    key_format: Annotated[str, Option("key.format", format_name, BYTES)] = BYTES
    value_schema: Annotated[str | None, Option("value.schema", avro_schema)] = None
    key_schema: Annotated[str | None, Option("key.schema", avro_schema)] = None
    value_strategy: Annotated[str | None, Option("value.subject.name.strategy", strategy)] = None
    key_strategy: Annotated[str | None, Option("key.subject.name.strategy", strategy)] = None
    register: Annotated[bool, Option("registry.register", boolean, False)] = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From what ``read_options`` returned."""
        return cls(**fields_from(cls, values))

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that are encoded as Avro."""
        return tuple(name for name in COLUMNS if getattr(self, f"{name}_format") == AVRO)

    def schema(self, column: str) -> str | None:
        """The given schema of a column."""
        found: str | None = getattr(self, f"{column}_schema")
        return found

    def subject(self, column: str, topic: str | None) -> str:
        """The subject under which the registry has the schema of a column."""
        how = getattr(self, f"{column}_strategy") or TOPIC
        if how == TOPIC:
            return f"{topic}-{column}"
        name = parsed(str(self.schema(column))).name
        return name if how == RECORD else f"{topic}-{name}"


def check_subjects(values: Mapping[str, Any], problems: Problems) -> None:
    """Note what a subject's name needs and is not given."""
    for column in COLUMNS:
        if values[f"{column}.format"] != AVRO:
            continue
        how = values[f"{column}.subject.name.strategy"] or TOPIC
        if how != RECORD and values["topic"] is None:
            problems.add(
                f"{column}.format=avro with the subject of a topic needs the option topic.",
                f"set topic, or {column}.subject.name.strategy=record with {column}.schema.",
            )
        schema = values[f"{column}.schema"]
        if how != TOPIC and (schema is None or parsed(schema).kind != "record"):
            problems.add(
                f"{column}.subject.name.strategy={how} names a schema by its record.",
                f"set {column}.schema to the schema of a record.",
            )
