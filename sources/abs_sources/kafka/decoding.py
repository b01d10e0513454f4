"""Decodes key and value by the formats that the options ask for.

The libraries (extra ``avro``) are imported only where an option asks for the format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from abs_clients.extras import importing
from abs_sources.kafka.formats import Formats

Decode = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Decodes a batch's columns; raises DataError for a record that cannot be read."""


def with_pins(formats: Formats, topics: Sequence[str]) -> Formats:
    """These, with the id of each schema that is not given, so that all readers take the same.

    Raises:
        SchemaError: the registry has none.
        TargetError: the registry does not answer.
    """
    if formats.pinned or all(formats.schema(column) for column in formats.columns):
        return formats
    with _importing():
        from abs_sources.kafka.avro.columns import newest
    return replace(formats, pinned=newest(formats, topics))


def read_schema(formats: Formats, raw: pa.Schema) -> pa.Schema:
    """The columns as they are read.

    Raises:
        SchemaError: no column can hold what the schema has.
        TargetError: the registry does not answer.
    """
    if not formats.columns:
        return raw
    with _importing():
        from abs_sources.kafka.avro.columns import decoded_schema
    return decoded_schema(formats, raw)


def decoder(formats: Formats) -> Decode | None:
    """What decodes a batch; None: it stays as it is."""
    if not formats.columns:
        return None
    with _importing():
        from abs_sources.kafka.avro.columns import Columns
    return Columns(formats).decoded


def _importing() -> Any:
    return importing("The option value.format or key.format")
