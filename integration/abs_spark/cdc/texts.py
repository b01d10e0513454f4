"""Values as the texts that PostgreSQL reads under any setting of a role."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal

import numpy as np

from abs_spark.cdc import clock
from abs_spark.cdc.decode import Kind, Make, json_pairs, numeral
from abs_spark.cdc.misread import MisreadError
from abs_spark.cdc.target import (
    LEAVE_OUT,
    LOST,
    TEXT_KINDS,
    TEXTS,
    TargetColumn,
    bare,
    misfit,
    sent_as_text,
    wants_bytes,
)


def float_text(value: float) -> str:
    """With Python's digits, which are enough for 64 bits."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return "NaN" if math.isnan(value) else repr(value)


def real_text(value: float) -> str:
    """With the digits that 32 bits need."""
    return float_text(value) if not math.isfinite(value) else str(np.float32(value))


_MAX_FRACTION = 1000


def decimal_text(value: Decimal) -> str:
    """Without exponent, with the digits behind the point that it has."""
    if not value.is_finite():
        return "NaN" if value.is_nan() else "Infinity" if value > 0 else "-Infinity"
    text = format(value, "f")
    fraction = text.partition(".")[2]
    if len(fraction) > _MAX_FRACTION and not fraction.strip("0"):
        return text.partition(".")[0]  # of a numeric with a negative scale
    return text


def _hstore(pairs: Mapping[str, str | None]) -> str:
    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    return ", ".join(
        f"{quoted(key)}=>{'NULL' if value is None else quoted(value)}"
        for key, value in pairs.items()
    )


def _ewkb(value: tuple[bytes, int | None]) -> str:
    data, srid = value
    if len(data) < 5 or data[0] != 1:
        raise MisreadError("is no geometry in WKB")
    kind = int.from_bytes(data[1:5], "little")
    if srid is None or kind & 0x20000000:
        return data.hex()
    return (
        data[:1] + (kind | 0x20000000).to_bytes(4, "little") + srid.to_bytes(4, "little")
    ).hex() + (data[5:].hex())


_AS_TEXT: Mapping[Kind, Make] = {
    Kind.BOOLEAN: lambda value: "true" if value else "false",
    Kind.INTEGER: str,
    Kind.REAL: real_text,
    Kind.DOUBLE: float_text,
    Kind.NUMERIC: decimal_text,
    Kind.TEXT: str,
    Kind.JSON: str,
    Kind.INTERVAL: str,
    Kind.TIMETZ: str,
    Kind.BITS: str,
    Kind.DATE: clock.date_text,
    Kind.TIME: clock.clock_text,
    Kind.TIMESTAMP: clock.timestamp_text,
    Kind.TIMESTAMPTZ: lambda value: clock.timestamp_text(value, "+00"),
    Kind.DURATION: lambda value: f"{value} microseconds",
    Kind.POINT: lambda value: f"({float_text(value[0])},{float_text(value[1])})",
    Kind.GEOMETRY: _ewkb,
    Kind.PAIRS: lambda value: json.dumps(value, ensure_ascii=False),
}


def text_fit(kind: Kind, target: TargetColumn) -> Make:
    """The text of a value, for a column of text or of a type that is filled by it."""
    if target.pg in LOST:
        raise MisreadError(LOST[target.pg], LEAVE_OUT)
    pg = bare(target.pg)
    if pg == "hstore" and kind in (Kind.PAIRS, Kind.JSON):
        return _hstore if kind is Kind.PAIRS else lambda value: _hstore(json_pairs(value))
    if pg in ("geometry", "geography") and kind is Kind.GEOMETRY:
        return _ewkb
    if kind is Kind.BYTES and target.pg and wants_bytes(target):
        return utf8
    fits = TEXT_KINDS.get(target.pg)
    if fits is None and target.pg in ("", *TEXTS):
        fits = frozenset(_AS_TEXT) - {Kind.GEOMETRY}
    if fits is None and sent_as_text(target):
        fits = frozenset({Kind.TEXT, Kind.JSON})
    if fits is None or kind not in fits or kind not in _AS_TEXT:
        raise misfit(kind, target)
    if target.pg == "numeric" and kind is Kind.TEXT:
        return lambda value: decimal_text(numeral(value))
    if target.pg == "bit" and kind is Kind.BOOLEAN:
        return lambda value: "1" if value else "0"
    return _AS_TEXT[kind]


def utf8(data: bytes) -> str:
    """The text of bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise MisreadError("is no text in UTF-8") from None
