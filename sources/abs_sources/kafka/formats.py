"""The formats of key and value that the source reads: bytes, or Avro as columns of its schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from abs_clients.avro.settings import (
    AVRO,
    COLUMNS,
    ColumnFormats,
    RegistrySettings,
)
from abs_clients.options import Problems, fields_from


@dataclass(frozen=True, slots=True)
class Formats(ColumnFormats):
    """How key and value are decoded.

    Args:
        value_schema, key_schema: the reader's schema, as JSON; None: the newest one of the topic's
            subject.
        pinned: the schema's id of a column for which none is given, once it was asked for.
    """

    registry: RegistrySettings = field(default_factory=RegistrySettings)
    patience: float = 0.0
    pinned: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any], patience: float) -> Self:
        """From what ``read_options`` returned."""
        registry = RegistrySettings.of(values)
        return cls(**fields_from(cls, values), registry=registry, patience=patience)


def check_topics(values: Mapping[str, Any], problems: Problems) -> None:
    """Note that several topics have no newest schema in common."""
    alone = len(topics_of(values)) == 1
    for column in COLUMNS:
        asked = values[f"{column}.format"] == AVRO and values[f"{column}.schema"] is None
        if asked and not alone:
            problems.add(
                f"{column}.format=avro reads by the newest schema of one topic, and the options name "
                "several, or a pattern.",
                f"set {column}.schema to the schema that the column is to have.",
            )


def topics_of(values: Mapping[str, Any]) -> Sequence[str]:
    """The topics that the options name."""
    assigned = [topic for topic, _ in values["assign"] or ()]
    return sorted({*(values["subscribe"] or ()), *assigned})
