"""How readers read a target exactly up to the end of an epoch, by what its sink noted then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Reading:
    """How Spark reads it.

    Args:
        options: of ``spark.read.format(format)``; they may hold secrets.
        as_sink: besides, it takes the sink's own options.
        rows: where Spark needs a library for the format that it may not have: reads the same rows, in
            any process. It can be pickled.
    """

    format: str
    options: Mapping[str, str] = field(repr=False)
    rows: Callable[[], pa.RecordBatchReader] | None = field(default=None, repr=False)
    as_sink: bool = False


@dataclass(frozen=True, slots=True)
class AsOf:
    """What a reader needs.

    Args:
        told: for programs, as JSON has it; no secret (I9).
        text: the same in a few words, for people.
        unreadable: why a reader cannot stop there, as a sentence; empty if it can.
        reading: only where the target's options were given, and it can be read.
    """

    told: Mapping[str, Any]
    text: str
    unreadable: str = ""
    reading: Reading | None = None


NOW = AsOf(
    {"now": True},
    "now",
    "It has no earlier states: a reader sees all epochs that are finished when it reads.",
)
"""Of a system that keeps no history."""
