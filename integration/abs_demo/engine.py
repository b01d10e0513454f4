"""The engines of the demo's job."""

from __future__ import annotations

from enum import StrEnum


class Engine(StrEnum):
    """Both use the same sink by the same protocol."""

    SPARK = "spark"
    EMBEDDED = "embedded"
    """The runtime of this package: barriers, keyed state, one process."""
