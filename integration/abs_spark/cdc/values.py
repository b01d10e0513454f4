"""Values of Spark's types."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal

import numpy as np
from pyspark.sql import types as T  # noqa: N812 - as Spark users call it

from abs_spark.cdc.decode import Kind, Make, numeral
from abs_spark.cdc.misread import MisreadError
from abs_spark.cdc.target import TargetColumn
from abs_spark.cdc.texts import decimal_text


def _whole(bits: int) -> Callable[[Kind, TargetColumn], Make | None]:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def check(value: int) -> int:
        if not least <= value <= most:
            raise MisreadError(f"does not fit into {bits} bits")
        return value

    def whole(value: Decimal) -> int:
        if not value.is_finite() or value != value.to_integral_value():
            raise MisreadError("is no whole number")
        return check(int(value))

    def fit(kind: Kind, _: TargetColumn) -> Make | None:
        kinds: Mapping[Kind, Make] = {Kind.INTEGER: check, Kind.NUMERIC: whole}
        return kinds.get(kind)

    return fit


def _real(kind: Kind, _: TargetColumn) -> Make | None:
    def exact(value: float) -> float:
        if math.isfinite(value) and _as_real(value) != value:
            raise MisreadError("has more digits than real")
        return value

    def near(value: float) -> float:
        """JSON has the decimal digits of a real; without a schema it can be a double."""
        real = _as_real(value)
        if math.isfinite(value) and value not in (real, float(str(np.float32(real)))):
            digits = len(repr(value).partition("e")[0].replace(".", "").strip("-0"))
            if digits > _REAL_DIGITS or float(f"{real:.{digits - 1}e}") != value:
                raise MisreadError("has more digits than real")
        return value

    return {Kind.REAL: near, Kind.DOUBLE: exact}.get(kind)


_REAL_DIGITS = 9
"""Significant decimal digits by which each real differs from every other one (IEEE 754 single)."""


def _as_real(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _double(kind: Kind, _: TargetColumn) -> Make | None:
    def exact(value: int) -> float:
        if int(float(value)) != value:
            raise MisreadError("has more digits than double precision")
        return float(value)

    kinds: Mapping[Kind, Make] = {
        Kind.REAL: _as_real,
        Kind.DOUBLE: float,
        Kind.INTEGER: exact,
    }
    return kinds.get(kind)


def _decimal(kind: Kind, target: TargetColumn) -> Make | None:
    spark = target.spark
    assert isinstance(spark, T.DecimalType), "asked for decimals"
    precision, scale = spark.precision, spark.scale

    def exact(value: Decimal) -> Decimal:
        if not value.is_finite():
            raise MisreadError(
                f"is {decimal_text(value)}, which {target.shown} does not have",
                "take the column as STRING: it then is PostgreSQL's own text",
            )
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int), "finite"
        while exponent < -scale and digits and digits[-1] == 0:
            digits, exponent = digits[:-1], exponent + 1
        whole = "".join(map(str, digits)).lstrip("0")
        if whole and (exponent < -scale or len(whole) + exponent > precision - scale):
            raise MisreadError(
                f"has more digits than {target.shown}",
                "give the column the source's precision and scale, or take it as STRING",
            )
        return Decimal((sign, digits, exponent)) if whole else Decimal(0)

    kinds: Mapping[Kind, Make] = {
        Kind.NUMERIC: exact,
        Kind.INTEGER: lambda value: exact(Decimal(value)),
        Kind.TEXT: lambda value: exact(numeral(value)),
    }
    return kinds.get(kind)


_MAX_MICROS = 2**63


def _moment(*kinds: Kind) -> Callable[[Kind, TargetColumn], Make | None]:
    def check(value: int | str) -> int:
        if isinstance(value, str) or not -_MAX_MICROS <= value < _MAX_MICROS:
            raise MisreadError(
                f"is {value if isinstance(value, str) else 'a time'} that Spark's type does not have",
                "take the column as STRING: it then is PostgreSQL's own text",
            )
        return value

    return lambda kind, _: check if kind in kinds else None


_ISO_SPAN = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?"
    r"T?(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?)(\d+)(?:\.(\d{1,6}))?S)?"
)


def _span(kind: Kind, _: TargetColumn) -> Make | None:
    def parsed(value: str) -> int:
        match = _ISO_SPAN.fullmatch(value)
        if match is None or int(match[1] or 0) or int(match[2] or 0):
            raise MisreadError("has months or years, which an interval of days has not")
        days, hours, minutes, seconds = (int(match[n] or 0) for n in (3, 4, 5, 7))
        fraction = seconds * 1_000_000 + int((match[8] or "").ljust(6, "0"))
        whole = ((days * 24 + hours) * 60 + minutes) * 60_000_000
        return whole + (-fraction if match[6] else fraction)

    kinds: Mapping[Kind, Make] = {Kind.DURATION: int, Kind.INTERVAL: parsed}
    return kinds.get(kind)


def _only(kind: Kind) -> Callable[[Kind, TargetColumn], Make | None]:
    return lambda other, _: (lambda value: value) if other is kind else None


BY_TYPE: Mapping[type[T.DataType], Callable[[Kind, TargetColumn], Make | None]] = {
    T.BooleanType: _only(Kind.BOOLEAN),
    T.ByteType: _whole(8),
    T.ShortType: _whole(16),
    T.IntegerType: _whole(32),
    T.LongType: _whole(64),
    T.FloatType: _real,
    T.DoubleType: _double,
    T.DecimalType: _decimal,
    T.BinaryType: _only(Kind.BYTES),
    T.DateType: _moment(Kind.DATE),
    T.TimestampType: _moment(Kind.TIMESTAMPTZ),
    T.TimestampNTZType: _moment(Kind.TIMESTAMP),
    T.DayTimeIntervalType: _span,
}
READABLE = (*BY_TYPE, T.StringType)
"""The types of Spark that values are read as; and arrays of them."""
