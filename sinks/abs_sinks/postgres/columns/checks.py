"""Checks, before sending, that PostgreSQL can hold a column's values.

Errors do not show values: they may be personal data.
"""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.arrow import is_list
from abs_clients.buffers import values_of
from abs_sinks.jsontext import check_keys
from abs_sinks.postgres.columns.types import PgType, becomes_json
from abs_sinks.refusals import Code, Reason, check_text, inside, parents_of, refuse
from abs_sinks.text import interval_parts

# src/include/datatype/timestamp.h, counted from 1970 as Arrow does. The upper end of timestamp
# (294277 AD) lies beyond what 64 bits of microseconds since 1970 can say.
MIN_TIMESTAMP_US = -210_866_803_200_000_000
"""4714-11-24 BC, the minimum of timestamp and timestamptz."""
MIN_DATE_DAYS, MAX_DATE_DAYS = -2_440_588, 2_145_042_905
"""4714-11-24 BC and 5874897-12-31."""
DAY_US = 86_400_000_000
MAX_INT64 = 2**63 - 1


def check_values(array: pa.Array, pg: PgType, column: str) -> None:
    """Refuse values that the column's type cannot hold exactly.

    Args:
        array: of the type that ``fit`` chose for this column.
        column: its name, for the message.

    Raises:
        BadValuesError: of the column's rows.
    """
    arrow = array.type
    outside = f"lie outside the range of {pg.label}"
    if pa.types.is_string(arrow):
        check_text(array, column)
        _check_length(array, pg, column)
        _check_parsed(array, pg, column)
    elif pg.name == "jsonb" and becomes_json(arrow, pg):
        check_keys(array, column)
    elif is_list(arrow) and pg.element is not None:
        inner = array.flatten()
        # All dimensions of an array are of one type: the elements' is that of the leaves.
        with inside(lambda: parents_of(array)):
            check_values(inner, pg if is_list(inner.type) else pg.element, column)
    elif pa.types.is_timestamp(arrow):
        before = f"lie before 4714-11-24 BC, the first moment that {pg.label} holds"
        _check_range(array, pa.int64(), MIN_TIMESTAMP_US, MAX_INT64, column, before)
        _check_fraction(array, pg, column)
    elif pa.types.is_date32(arrow):
        _check_range(array, pa.int32(), MIN_DATE_DAYS, MAX_DATE_DAYS, column, outside)
    elif pa.types.is_time64(arrow):
        _check_range(array, pa.int64(), 0, DAY_US, column, outside)
        _check_fraction(array, pg, column)
    elif pa.types.is_duration(arrow):
        _check_fraction(array, pg, column)
    elif arrow.equals(pa.month_day_nano_interval()):
        micros = pa.array(
            interval_parts(array, column)["nanos"] // 1000, mask=array.is_null().to_numpy(False)
        )
        _check_fraction(micros, pg, column)


def _check_length(array: pa.Array, pg: PgType, column: str) -> None:
    """Check varchar(n) and char(n): the server would silently cut trailing blanks."""
    most = pg.max_chars
    if most is None or (pc.max(pc.binary_length(array)).as_py() or 0) <= most:
        return
    remedy = "cut them in Spark with left(), or make the column longer"
    reason = Reason(Code.TOO_LONG, column, f"are too long for {pg.label}", remedy)
    length = pc.binary_length(array) if pg.one_byte else pc.utf8_length(array)
    refuse(reason, pc.greater(length, most))


_DATE, _TIME, _ZONE = (
    r"\d{4,7}-\d\d-\d\d",
    r"\d\d:\d\d(:\d\d(\.\d{0,%d}0*)?)?",
    r"\s?(Z|[-+]\d\d(:?\d\d){0,2})",
)
_ISO = {
    "date": _DATE,
    "time": _TIME,
    "timetz": _TIME + _ZONE,
    "timestamp": f"{_DATE}[ T]{_TIME}",
    "timestamptz": f"{_DATE}[ T]{_TIME}{_ZONE}",
}
"""Texts that mean the same under any DateStyle and TimeZone of the role."""


_SECONDS = r"(:\d\d?\.\d{0,%d}0*(?:[^\d]|$))|(\d*\.\d{0,%d}0*\s*[sS])"
"""What may have a fraction in an interval."""

_ONE_SIGN = r"^\s*-[^-+P]*[0-9][^-+P]*\s[^-+P]*[0-9][^-+P]*$"
"""Under IntervalStyle sql_standard a first minus applies to all fields."""


def _rounded(array: pa.Array) -> pa.BooleanArray:
    """Which texts have a number with more digits than a double keeps."""
    long = pc.match_substring_regex(pc.replace_substring(array, ".", ""), "[0-9]{16}")
    if not pc.any(long).as_py():
        return long

    def exact(number: str) -> bool:
        return Decimal(number) == Decimal(repr(float(number)))

    return pa.array(
        text is not None and not all(map(exact, _NUMBER.findall(text)))
        for text in array.to_pylist()
    )


_NUMBER = re.compile(r"\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?")


def _check_parsed(array: pa.Array, pg: PgType, column: str) -> None:
    """Check text that the server would round, cut, or read as the role's settings say."""
    times = pg.bounds or pg
    digits = times.fraction_digits
    code, bad = Code.TOO_PRECISE, None
    if pg.name == "numeric":
        _check_numeral(array, pg, column)
    elif pg.name in _ISO and pg.name != "timetz":
        whole = f"({_ISO[pg.name].replace('%d', str(digits))}{_ERA.get(pg.name, '')}"
        good = pc.match_substring_regex(array, f"^{whole}|{_INFINITE.get(pg.name, '$^')})$")
        code, bad = Code.MALFORMED, pc.invert(good)
        why = f"are not in the ISO form of {pg.label}, or have more digits of a second"
        remedy = "write 2026-01-02 03:04:05.678901, with +00:00 where the type has a zone"
    elif times.name in _ISO:
        rest = pc.replace_substring_regex(array, _ISO[times.name].replace("%d", str(digits)), "")
        bad = pc.match_substring_regex(rest, "[0-9]")
        why = f"are not in the ISO form of {times.label}, or have more digits of a second"
        remedy = "write 2026-01-02 03:04:05.678901, with +00:00 where the type has a zone"
    elif times.category == "T":
        # PostgreSQL rounds fractions of all units but seconds: to months, days and microseconds.
        rest = pc.replace_substring_regex(array, _SECONDS.replace("%d", str(digits)), "")
        small = r"|[0-9]\s*(?i:us|ms|mil|mic)" if digits < 6 else ""
        bad = pc.or_(
            pc.match_substring_regex(rest, rf"[.,]|[0-9][eE][-+]?[0-9]{small}"),
            pc.match_substring_regex(array, _ONE_SIGN),
        )
        why = (
            f"have a fraction of a unit other than seconds, more digits of a second than {pg.label} "
            "keeps, or one minus for several fields"
        )
        remedy = (
            "write months, days and seconds in whole numbers and such digits, each with its sign"
        )
    elif pg.category == "G":
        bad = _rounded(array)
        code, why, remedy = (
            Code.TOO_PRECISE,
            "hold a number that double precision rounds",
            "round it",
        )
    elif pg.category == "U" and 0 < pg.size <= 8:
        # tid drops what follows its parenthesis; a sign makes xid and cid wrap around.
        code, why, remedy = Code.MALFORMED, f"are no {pg.label}", "correct them in Spark"
        good = r"^\s*\(?[0-9A-Fa-f][0-9A-Fa-f:/,.-]*\)?\s*$"
        bad = pc.invert(pc.match_substring_regex(array, good))
    if bad is not None:
        refuse(Reason(code, column, why, remedy), bad)


_ERA = {"date": "( BC)?", "timestamp": "( BC)?", "timestamptz": "( BC)?"}
_INFINITE = dict.fromkeys(_ERA, "-?infinity")
_NUMERAL = r"^-?[0-9]+(\.[0-9]+)?$"


def _check_numeral(array: pa.Array, pg: PgType, column: str) -> None:
    """Check the text of a numeric: the server would round what has more digits behind the point."""
    special = r"^NaN$" if pg.numeric_size else r"^(NaN|-?Infinity)$"
    is_special = pc.match_substring_regex(array, special)
    good = pc.or_(is_special, pc.match_substring_regex(array, _NUMERAL))
    why = f"are no {pg.label}"
    remedy = "write digits with a point, without an exponent; or cast them in Spark"
    refuse(Reason(Code.MALFORMED, column, why, remedy), pc.invert(good))
    if pg.numeric_size is None:
        return
    precision, scale = pg.numeric_size
    rest = f"\\.[0-9]{{{max(scale, 0)}}}[0-9]*[1-9]" if scale >= 0 else r"\.[0-9]*[1-9]"
    finer = pc.match_substring_regex(array, rest)
    if scale < 0:
        uneven = pc.match_substring_regex(array, rf"[1-9][0-9]{{0,{-scale - 1}}}(\.|$)")
        finer = pc.or_(finer, uneven)
    why = f"have more digits behind the point than {pg.label}"
    refuse(Reason(Code.TOO_PRECISE, column, why, "round them in Spark, or widen the column"), finer)
    whole = precision - scale
    larger = rf"^-?0*[1-9][0-9]{{{whole},}}(\.|$)" if whole > 0 else r"^-?0*[1-9]"
    if whole < 0:
        larger = rf"{larger}|^-?0*\.0{{0,{-whole - 1}}}[1-9]"
    why = f"have more digits before the point than {pg.label}"
    refuse(
        Reason(Code.OUT_OF_RANGE, column, why, "widen the column, or filter them"),
        pc.match_substring_regex(array, larger),
    )


def _check_range(
    array: pa.Array, ticks_type: pa.DataType, low: int, high: int, column: str, why: str
) -> None:
    # Values under a null can only cause the closer look.
    values = values_of(array, ticks_type.to_pandas_dtype())
    if values.size == 0 or (low <= values.min() and values.max() <= high):
        return
    ticks = array.view(ticks_type)
    outside = pc.or_(pc.less(ticks, low), pc.greater(ticks, high))
    refuse(Reason(Code.OUT_OF_RANGE, column, why, "correct or filter them in Spark"), outside)


def _check_fraction(array: pa.Array, pg: PgType, column: str) -> None:
    """Check timestamp(p) and its like: the server would silently round."""
    unit = 10 ** (6 - pg.fraction_digits)
    if unit == 1:
        return
    ticks = array.view(pa.int64())
    rest = pc.subtract(ticks, pc.multiply(pc.divide(ticks, unit), unit))
    why = f"have more digits of a second than {pg.label} keeps"
    remedy = "truncate them in Spark with date_trunc(), or make the column more precise"
    refuse(Reason(Code.TOO_PRECISE, column, why, remedy), pc.not_equal(rest, 0))
