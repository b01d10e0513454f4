"""How a value is sent whose event has no schema: by the column, what the user says, and its form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import types as T  # noqa: N812 - as Spark users call it

from abs_spark.cdc import wire
from abs_spark.cdc.convert import converter, listed
from abs_spark.cdc.decode import Make
from abs_spark.cdc.misread import MisreadError
from abs_spark.cdc.settings import ADAPTIVE, CONNECT, DOUBLE, PRECISE, Settings
from abs_spark.cdc.target import TargetColumn, opaque
from abs_spark.cdc.wire import Wire

_PLAIN: Mapping[type[T.DataType], str] = {
    T.ByteType: "int8",
    T.ShortType: "int16",
    T.IntegerType: "int32",
    T.LongType: "int64",
    T.BooleanType: "boolean",
    T.FloatType: "float",
    T.DoubleType: "double",
}
_BY_SCHEMA = "let events have their schema (value.converter.schemas.enable=true)"


def converting(
    target: TargetColumn, settings: Settings, *, julian: bool = False, item: bool = False
) -> Make:
    """As ``converter``, of what is sent without a schema."""
    if target.items is not None:
        return listed(converting(target.items, settings, item=True))
    made: dict[object, Make] = {}

    def make(value: Any) -> Any:
        # Of all values but objects the form is their type.
        form: object = _shape(value) if isinstance(value, dict) else type(value)
        if form not in made:
            sent = assumed(target, value, settings)
            made[form] = converter(sent, target, settings, julian=julian, item=item)
        return made[form](value)

    return make


_SHAPES = ({"x", "y"}, {"wkb"}, {"scale", "value"})


def _shape(value: dict[str, Any]) -> int:
    """Which of Debezium's structs an object is; none: a map."""
    return next((n for n, keys in enumerate(_SHAPES) if keys <= value.keys()), -1)


def assumed(target: TargetColumn, value: Any, settings: Settings) -> Wire:
    """The type that a value has at Debezium.

    Raises:
        MisreadError: its form contradicts what the user says, or cannot be told.
    """
    spark = type(target.spark)
    if spark in _PLAIN:
        return Wire(_PLAIN[spark])
    if is_number(target):
        return _number(target, value, settings)
    if spark is T.BinaryType or opaque(target):
        return Wire("bytes" if settings.binary in ("bytes", None) else "string")
    if is_date(target):
        return Wire("string", wire.ISO_DATE) if isinstance(value, str) else Wire("int32", wire.DATE)
    if spark is T.TimestampType or target.pg == "timestamptz":
        return Wire("string", wire.ZONED_TIMESTAMP)
    if is_local(target):
        return _local(target, value, settings)
    if is_interval(target):
        text = isinstance(value, str)
        return Wire("string", wire.INTERVAL) if text else Wire("int64", wire.DURATION)
    return _other(target, value)


def is_number(target: TargetColumn) -> bool:
    """Whether the column is a numeric."""
    return isinstance(target.spark, T.DecimalType) or target.pg in ("numeric", "money")


def is_date(target: TargetColumn) -> bool:
    """Whether the column is a date."""
    return isinstance(target.spark, T.DateType) or target.pg == "date"


def is_local(target: TargetColumn) -> bool:
    """Whether the column is a time without a zone."""
    return isinstance(target.spark, T.TimestampNTZType) or target.pg in ("timestamp", "time")


def is_interval(target: TargetColumn) -> bool:
    """Whether the column is an interval."""
    return isinstance(target.spark, T.DayTimeIntervalType) or target.pg == "interval"


def is_binary(target: TargetColumn) -> bool:
    """Whether the column is binary."""
    return isinstance(target.spark, T.BinaryType)


def _number(target: TargetColumn, value: Any, settings: Settings) -> Wire:
    if isinstance(value, dict):
        return Wire("struct", wire.VARIABLE_DECIMAL)
    if type(value) is int:
        return Wire("int64")
    if type(value) is float:
        raise MisreadError(
            "is sent as a JSON number with a point",
            "set decimal.handling.mode to precise or string in Debezium: double rounds",
        )
    if settings.decimals != PRECISE:
        return Wire("string")
    scale = settings.scales.get(target.name)
    if scale is None:
        raise MisreadError(
            "is sent as bytes, without its scale",
            f"set scales={{'{target.name}': ...}} to the scale of the source's numeric(p, s); or "
            f"{_BY_SCHEMA}, or set decimal.handling.mode=string in Debezium",
        )
    # Debezium takes the 11 bits in which PostgreSQL has a negative scale for a positive one.
    return Wire("bytes", wire.DECIMAL, (("scale", str(scale % 2048)),))


_CLOCKS = {"microseconds": "MicroTime", "nanoseconds": "NanoTime"}


def _local(target: TargetColumn, value: Any, settings: Settings) -> Wire:
    clock, times = target.pg == "time", settings.times
    if times == "isostring" or isinstance(value, str):
        if times != "isostring" or not isinstance(value, str):
            raise MisreadError(
                f"is sent as {'text' if isinstance(value, str) else 'a number'}",
                f"times={times!r} says otherwise: set it to time.precision.mode of Debezium",
            )
        return Wire("string", wire.ISO_TIME if clock else wire.ISO_TIMESTAMP)
    if times == CONNECT:
        return Wire(
            "int32" if clock else "int64", wire.CONNECT_TIME if clock else wire.CONNECT_TIMESTAMP
        )
    coarse = times in ADAPTIVE and target.name in (settings.milliseconds or ())
    if clock:
        name = "Time" if coarse and times == ADAPTIVE[0] else _CLOCKS.get(times or "", "MicroTime")
        return Wire("int64", f"io.debezium.time.{name}")
    name = (
        "NanoTimestamp" if times == "nanoseconds" else "Timestamp" if coarse else "MicroTimestamp"
    )
    return Wire("int64", f"io.debezium.time.{name}")


def _other(target: TargetColumn, value: Any) -> Wire:
    """A column of text, or of a type that is filled by it."""
    if target.pg == "bit" and not isinstance(value, bool):
        raise MisreadError("is sent as bits, without their number", _BY_SCHEMA)
    if isinstance(value, bool):
        return Wire("boolean")
    if isinstance(value, int):
        return Wire("int64")
    if isinstance(value, dict):
        names = (wire.POINT, wire.GEOMETRY, wire.VARIABLE_DECIMAL)
        shape = -1 if target.pg.endswith(".hstore") else _shape(value)
        return Wire("map") if shape < 0 else Wire("struct", names[shape])
    if isinstance(value, str):
        return Wire("string", wire.JSON if target.pg.endswith(".hstore") else "")
    raise MisreadError("is sent in a form that does not tell what it is", _BY_SCHEMA)


def lacking(targets: Sequence[TargetColumn], settings: Settings) -> Iterable[tuple[str, str]]:
    """What must be said for events without a schema: the columns, and what to set."""
    leaves = [target.items or target for target in targets]

    def named(test: Any) -> str:
        return ", ".join(target.name for target in leaves if test(target))

    numbers, binary, local = named(is_number), named(is_binary), named(is_local)
    if numbers and settings.decimals in (None, DOUBLE):
        yield (
            f"{numbers}: numeric" + (", which double rounds" if settings.decimals else ""),
            "decimals='precise' or 'string' (decimal.handling.mode; 'precise' wants scales, too)",
        )
    if binary and settings.binary is None:
        yield (
            f"{binary}: binary",
            "binary='bytes', 'base64', 'base64-url-safe' or 'hex' (binary.handling.mode)",
        )
    if local and settings.times is None:
        yield (
            f"{local}: without a zone",
            "times='adaptive', 'microseconds', ... (time.precision.mode)",
        )
    if local and settings.times in ADAPTIVE and settings.milliseconds is None:
        yield (
            f"{local}: without a zone",
            "milliseconds=[...], the source's columns of timestamp(0) to (3) or time(0) to (3)",
        )
