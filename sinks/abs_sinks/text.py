"""Converts values to exact text, which PostgreSQL reads back under any of its style settings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.buffers import Array, binaries, bytes_of, offsets_of, values_of
from abs_sinks.refusals import Code, Reason, refuse

# Arrow writes years of four digits, and PostgreSQL reads them, in this range: Spark's own.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
_HOUR_US = 3_600_000_000


def plain_text(array: pa.Array, column: str) -> pa.StringArray:
    """The text form of plain scalars, without quotes; null for null.

    Floats are the shortest text that reads back as the same float; NaN, Infinity, -Infinity.
    Decimals are exact. Moments are in UTC, ``2024-02-29T12:00:00.000000Z``. Durations are hours,
    ``26:03:04.500000``; intervals ``+1 mons -2 days 26:03:04.500000``. Bytes are hexadecimal,
    ``\\x00ff``, which PostgreSQL casts to bytea.

    Raises:
        RowError: a date or timestamp lies outside the years 1 to 9999, or a time outside of its day.
    """
    arrow = array.type
    if pa.types.is_string(arrow):
        return array
    if pa.types.is_floating(arrow):
        return _floats(array)
    if pa.types.is_date32(arrow):
        check_years(array, column)
    elif pa.types.is_timestamp(arrow):
        check_years(array, column)
        # Without a zone: the cast of a zoned timestamp looks the zone up for every value.
        clock = array.view(pa.timestamp("us")).cast(pa.string())
        iso = pc.replace_substring(clock, " ", "T")
        return iso if arrow.tz is None else pc.binary_join_element_wise(iso, "Z", "")
    elif pa.types.is_time64(arrow):
        return _times(array, column)
    elif pa.types.is_binary(arrow):
        return _hexadecimal(array)
    elif pa.types.is_duration(arrow):
        return _clock(array.view(pa.int64()))
    elif arrow.equals(pa.month_day_nano_interval()):
        return _interval(array, column)
    text = array.cast(pa.string())
    if _POINT_BEFORE_E and pa.types.is_decimal(arrow):
        return pc.replace_substring(text, ".E", "E")
    return text


# As a buffer: pa.array would import pandas, 0.24 s of CPU for each process that loads a sink.
_LAST_DIGIT = pa.py_buffer((1).to_bytes(16, "little"))
_SMALL = pa.Array.from_buffers(pa.decimal128(38, 38), 1, [None, _LAST_DIGIT])
_POINT_BEFORE_E = ".E" in str(_SMALL.cast(pa.string())[0])
"""Whether this pyarrow (15 does) writes a small decimal as ``1.E-38``, which is no number in JSON."""


def check_years(array: pa.Array, column: str) -> None:
    """Refuse plain days and moments outside of the years 1 to 9999 in UTC.

    Raises:
        BadValuesError: of the rows.
    """
    if pa.types.is_date32(array.type):
        ticks, first, last = array.view(pa.int32()), _FIRST_DAY, _LAST_DAY
    else:
        ticks, first, last = array.view(pa.int64()), _FIRST_US, _LAST_US
    outside = pc.or_(pc.less(ticks, first), pc.greater(ticks, last))
    why = "lie outside the years 1 to 9999 in UTC"
    refuse(Reason(Code.OUT_OF_RANGE, column, why, "correct or filter them in Spark"), outside)


# Of the years -32767 to 32767: for others Arrow writes a message in place of a text.
_FIRST_WRITTEN, _LAST_WRITTEN = -12_687_428, 11_248_737
_DAY_US = 24 * _HOUR_US


def check_written(array: pa.Array, column: str) -> None:
    """Refuse plain days and moments of which Arrow has no text; other values pass.

    Raises:
        BadValuesError: of the rows.
    """
    if pa.types.is_date32(array.type):
        ticks, unit = array.view(pa.int32()), 1
    elif pa.types.is_timestamp(array.type):
        ticks, unit = array.view(pa.int64()), _DAY_US
    else:
        return
    late = pc.greater_equal(ticks, (_LAST_WRITTEN + 1) * unit)
    outside = pc.or_(pc.less(ticks, _FIRST_WRITTEN * unit), late)
    why = "lie outside the years -32767 to 32767"
    refuse(Reason(Code.OUT_OF_RANGE, column, why, "correct or filter them in Spark"), outside)


def _times(array: pa.Array, column: str) -> pa.StringArray:
    """Times of day, and 24:00:00; where Arrow has no text, it writes a message in its place."""
    ticks = array.view(pa.int64())
    outside = pc.or_(pc.less(ticks, 0), pc.greater(ticks, _DAY_US))
    why = "lie outside the day from 00:00 to 24:00"
    refuse(Reason(Code.OUT_OF_RANGE, column, why, "correct or filter them"), outside)
    return pc.if_else(pc.equal(ticks, _DAY_US), "24:00:00", array.cast(pa.string()))


_NOT_FINITE = (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity"))


def _floats(array: pa.Array) -> pa.StringArray:
    text = array.cast(pa.string())
    # A reader of JSON takes -0 for an integer, which has no sign.
    for special, name in (*_NOT_FINITE, ("-0", "-0.0")):
        text = pc.if_else(pc.equal(text, special), name, text)
    return text


_HEX = np.array([list(f"{byte:02x}".encode()) for byte in range(256)], np.uint8)


def _hexadecimal(array: pa.Array) -> pa.StringArray:
    """``\\x`` and two digits for each byte."""
    digits = binaries(
        _HEX[bytes_of(array)].reshape(-1), 2 * np.diff(offsets_of(array)), array, pa.string()
    )
    return pc.binary_join_element_wise(r"\x", digits, "")


def _clock(ticks: pa.Array) -> pa.StringArray:
    """Microseconds as [-]hours:minutes:seconds.micros."""
    signed = ticks.fill_null(0).to_numpy(zero_copy_only=False)
    # Unsigned, so that the minimum of int64 has an absolute value too.
    size = np.where(signed < 0, -signed.view(np.uint64), signed.view(np.uint64))
    hours = pa.array(size // np.uint64(_HOUR_US)).cast(pa.string())
    rest = pa.array((size % np.uint64(_HOUR_US)).astype(np.int64), pa.time64("us"))
    minutes = pc.utf8_slice_codeunits(rest.cast(pa.string()), 2)
    sign = pc.if_else(pa.array(signed < 0), "-", "")
    made = pc.binary_join_element_wise(sign, pc.utf8_lpad(hours, 2, "0"), minutes, "")
    return pc.if_else(ticks.is_valid(), made, None)


_MONTHS_DAYS_NANOS = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])


def interval_parts(array: pa.Array, column: str) -> Array:
    """The fields months, days and nanos of intervals.

    Raises:
        RowError: nanoseconds that are no whole microseconds.
    """
    parts = values_of(array, _MONTHS_DAYS_NANOS)
    lost = pc.and_(pa.array(parts["nanos"] % 1000 != 0), array.is_valid())
    why = "have nanoseconds, and an interval keeps microseconds"
    refuse(Reason(Code.TOO_PRECISE, column, why, "round them before"), lost)
    return parts


def _interval(array: pa.Array, column: str) -> pa.StringArray:
    parts = interval_parts(array, column)
    # Both months and days have a sign: under IntervalStyle sql_standard a single one applies to all.
    made = pc.binary_join_element_wise(
        _signed(pa.array(parts["months"])),
        " mons ",
        _signed(pa.array(parts["days"])),
        " days ",
        _clock(pa.array(parts["nanos"] // 1000)),
        "",
    )
    return pc.if_else(array.is_valid(), made, None)


def _signed(numbers: pa.Array) -> pa.StringArray:
    text = numbers.cast(pa.string())
    return pc.if_else(pc.less(numbers, 0), text, pc.binary_join_element_wise("+", text, ""))
