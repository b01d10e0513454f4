"""What is sent becomes the value of a column, exactly, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import types as T  # noqa: N812 - as Spark users call it

from abs_spark.cdc import clock
from abs_spark.cdc.decode import Kind, Make, Reading, from_base64, from_hex, reading
from abs_spark.cdc.misread import MisreadError
from abs_spark.cdc.settings import Settings
from abs_spark.cdc.target import LEAVE_OUT, TargetColumn, misfit, wants_bytes
from abs_spark.cdc.texts import text_fit, utf8
from abs_spark.cdc.values import BY_TYPE
from abs_spark.cdc.wire import Wire

MILLISECOND_DIGITS = 3


def converter(
    sent: Wire,
    target: TargetColumn,
    settings: Settings,
    *,
    julian: bool = False,
    item: bool = False,
) -> Make:
    """The function that makes a value of the target's type of what is sent, which is never None.

    Args:
        julian: it is of a snapshot, which has dates before 1582-10-15 in another calendar.
        item: it is one of an array, which Debezium reads by a driver's classes, that lose more.

    Raises:
        MisreadError: no such value fits the target; the function raises it of single values.
    """
    if target.items is not None:
        if sent.type != "array" or sent.items is None:
            raise MisreadError(f"is sent as {sent.shown}, and is an array in the target")
        return listed(converter(sent.items, target.items, settings, item=True))
    if sent.type == "array":
        raise MisreadError(f"is sent as {sent.shown}, and is {target.shown} in the target")
    read = reading(sent)
    if item and read.kind in (Kind.TIME, Kind.TIMETZ):
        raise MisreadError(
            "is an array of times of day, which Debezium cuts to milliseconds", LEAVE_OUT
        )
    make = read.make
    if read.kind is Kind.DATE and (julian or item):
        make = _unshifted(make, lambda days: days in clock.SHIFTED)
    elif read.kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ) and item:
        make = _unshifted(make, lambda micros: micros < clock.SHIFTED.stop * clock.DAY)
    fit = fitting(read, target, settings)
    return lambda value: fit(make(value))


def _unshifted(make: Make, shifted: Callable[[int], bool]) -> Make:
    def checked(value: Any) -> Any:
        made = make(value)
        if not isinstance(made, str) and shifted(made):
            raise MisreadError(
                "is a date about 1582-10-15 or before, which Debezium sends in another calendar in a "
                "snapshot and in an array"
            )
        return made

    return checked


def listed(item: Make) -> Make:
    """The function that makes an array, of the one that makes an item."""

    def make(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise MisreadError("is not sent as an array")
        return [None if element is None else item(_flat(element)) for element in value]

    return make


def _flat(value: Any) -> Any:
    """An item of an array; Debezium sends those of arrays with more dimensions as Java's addresses."""
    if isinstance(value, str) and value.startswith("[L"):
        raise MisreadError(
            "is an array of two dimensions or more, which Debezium does not send", LEAVE_OUT
        )
    return value


def fitting(read: Reading, target: TargetColumn, settings: Settings) -> Make:
    """The function that makes the target's value of one that was read."""
    kind = read.kind
    if read.coarse and target.pg and target.digits > MILLISECOND_DIGITS:
        raise MisreadError(
            f"is cut to milliseconds (time.precision.mode=connect), and {target.shown} has more digits",
            "choose another time.precision.mode in Debezium; or give the target's column 3 digits: "
            "timestamp(3)",
        )
    if kind is Kind.DURATION and target.pg:
        raise MisreadError(
            "is sent as a number (interval.handling.mode=numeric), in which a month is 30.4 days",
            "set interval.handling.mode=string in Debezium",
        )
    if kind is Kind.TEXT and wants_bytes(target):
        decode = text_as_bytes(settings)
        if isinstance(target.spark, T.BinaryType):
            return decode
        return lambda value: utf8(decode(value))
    by_type = BY_TYPE.get(type(target.spark))
    if isinstance(target.spark, T.StringType):
        return text_fit(kind, target)
    fit = None if by_type is None else by_type(kind, target)
    if fit is None:
        raise misfit(kind, target)
    return fit


def text_as_bytes(settings: Settings) -> Make:
    """The function that reads bytes that are sent as text."""
    match settings.binary:
        case "hex":
            return from_hex
        case "base64" | "bytes":
            return from_base64
        case "base64-url-safe":
            return lambda value: from_base64(value, url_safe=True)
    raise MisreadError(
        "is sent as text, and is binary in the target",
        "set binary to what binary.handling.mode is in Debezium: base64, base64-url-safe or hex",
    )
