"""What the user says of Debezium's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Settings:
    """Debezium's settings that an event does not tell; None: not said.

    Args:
        decimals: ``decimal.handling.mode``: precise, string or double.
        scales: by column, of the source's ``numeric(p, s)``.
        binary: ``binary.handling.mode``.
        times: ``time.precision.mode``.
        milliseconds: the source's columns of ``timestamp(0)`` to ``(3)``, and of ``time`` likewise.
        unavailable: ``unavailable.value.placeholder``.
    """

    decimals: str | None = None
    scales: Mapping[str, int] = field(default_factory=dict)
    binary: str | None = None
    times: str | None = None
    milliseconds: frozenset[str] | None = None
    unavailable: str = ""


PRECISE, DOUBLE = "precise", "double"
BINARY = ("bytes", "base64", "base64-url-safe", "hex")
ADAPTIVE = ("adaptive", "adaptive_time_microseconds")
CONNECT = "connect"
TIMES = (*ADAPTIVE, "microseconds", "nanoseconds", CONNECT, "isostring")
