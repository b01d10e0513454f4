"""Dates and times as whole numbers, and as the texts of PostgreSQL and of ISO 8601.

Python's own dates end at the years 1 and 9999; PostgreSQL's begin 4714 BC and end after 294276.
"""

from __future__ import annotations

import re
from datetime import date

from abs_spark.cdc.misread import MisreadError

INFINITY, MINUS_INFINITY = "infinity", "-infinity"
DAY = 86_400_000_000
"""Microseconds."""

_EPOCH = date(1970, 1, 1).toordinal()
_FIRST, _LAST = 1 - _EPOCH, date.max.toordinal() - _EPOCH
_MIN_DAYS, _MAX_DAYS = -2_440_588, 2_145_042_905
"""4714-11-24 BC and 5874897-12-31, the limits of PostgreSQL's date."""
_MIN_MICROS, _MAX_MICROS = -210_866_803_200_000_000, 9_224_318_016_000_000_000
"""The limits of PostgreSQL's timestamps; the last is the first moment of 294277."""

_INFINITE_DAYS = {
    # A stream has the first two, a snapshot and an array the others.
    -2_147_472_692: INFINITY,
    -2_147_472_691: MINUS_INFINITY,
    -622_191_234: INFINITY,
    -625_821_272: MINUS_INFINITY,
}
_INFINITE_DATES = {
    "-5877611-06-21": INFINITY,
    "-5877611-06-22": MINUS_INFINITY,
    "+292278994-08-16": INFINITY,
    "+292269055-12-02": MINUS_INFINITY,
}
_INFINITE_MICROS = {
    9_223_372_036_825_200_000: INFINITY,
    -9_223_372_036_832_400_000: MINUS_INFINITY,
}
"""What Debezium 3.6 sends for infinity."""

_ISO = re.compile(
    r"(?P<year>[+-]?\d{4,9})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"(?:T(?P<clock>\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?))?(?P<zone>Z|[+-]\d\d:\d\d)?"
)
_CLOCK = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?")

SHIFTED = range(-141_427, -141_417)
"""1582-10-15 to -24: in a snapshot and in an array, what the ten days before come as, too."""


def days_of(number: int) -> int | str:
    """A date from its days since 1970."""
    if number in _INFINITE_DAYS:
        return _INFINITE_DAYS[number]
    if not _MIN_DAYS <= number <= _MAX_DAYS:
        raise MisreadError("is a date that PostgreSQL does not have")
    return number


def micros_of(number: int) -> int | str:
    """A timestamp from its microseconds since 1970."""
    if number in _INFINITE_MICROS:
        return _INFINITE_MICROS[number]
    if not _MIN_MICROS <= number < _MAX_MICROS:
        raise MisreadError("is a time that PostgreSQL does not have")
    return number


def micros_of_nanos(number: int) -> int | str:
    """A timestamp from its nanoseconds since 1970."""
    if number in (2**63 - 1, -(2**63)):
        return INFINITY if number > 0 else MINUS_INFINITY
    return micros_of(whole_micros(number))


def whole_micros(nanos: int) -> int:
    """Microseconds, where nothing is lost."""
    micros, rest = divmod(nanos, 1000)
    if rest:
        raise MisreadError("has nanoseconds, which PostgreSQL does not have")
    return micros


def days_of_iso(text: str) -> int | str:
    """A date from ``2024-02-29Z``."""
    text = text.removesuffix("Z")
    if text in _INFINITE_DATES:
        return _INFINITE_DATES[text]
    match = _ISO.fullmatch(text)
    if match is None or match["clock"] is not None:
        raise MisreadError("is no date in ISO form")
    return days_of(_days(int(match["year"]), int(match["month"]), int(match["day"])))


def micros_of_iso(text: str) -> int | str:
    """A timestamp from ``2024-02-29T12:34:56.789012Z``, in UTC."""
    if text in (INFINITY, MINUS_INFINITY):
        return text
    match = _ISO.fullmatch(text)
    if match is None or match["clock"] is None or match["zone"] is None:
        raise MisreadError("is no time in ISO form with its zone")
    days = _days(int(match["year"]), int(match["month"]), int(match["day"]))
    zone = match["zone"]
    shift = 0 if zone == "Z" else int(zone[0] + "60") * int(zone[1:3]) + int(zone[0] + zone[4:])
    return micros_of(days * DAY + clock_of(match["clock"]) - shift * 60_000_000)


def clock_of(text: str) -> int:
    """The microseconds of a time of day: ``12:34:56.789012``, with or without Z."""
    match = _CLOCK.fullmatch(text.removesuffix("Z"))
    if match is None:
        raise MisreadError("is no time of day in ISO form")
    hours, minutes, seconds = (int(match[n] or 0) for n in (1, 2, 3))
    nanos = int((match[4] or "").ljust(9, "0"))
    return checked_clock(((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + whole_micros(nanos))


def checked_clock(micros: int) -> int:
    """A time of day from its microseconds; 24:00 is one."""
    if not 0 <= micros <= DAY:
        raise MisreadError("is no time of a day")
    return micros


def date_text(days: int | str) -> str:
    """As PostgreSQL reads it under any DateStyle."""
    if isinstance(days, str):
        return days
    year, rest = _civil(days)
    return f"{year:04d}-{rest}" if year > 0 else f"{1 - year:04d}-{rest} BC"


def timestamp_text(micros: int | str, zone: str = "") -> str:
    """As PostgreSQL reads it under any DateStyle."""
    if isinstance(micros, str):
        return micros
    days, clock = divmod(micros, DAY)
    text = date_text(days)
    plain = text.removesuffix(" BC")
    return f"{plain} {clock_text(clock)}{zone}{text[len(plain) :]}"


def clock_text(micros: int) -> str:
    """A time of day."""
    seconds, fraction = divmod(micros, 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    text = f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 of a date of the Gregorian calendar, extended to all years."""
    # 400 years have 146097 days, and begin in March, so that the leap day is the last.
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    if not (1 <= month <= 12 and _civil(days)[1] == f"{month:02d}-{day:02d}"):
        raise MisreadError("is no date")
    return days


def _civil(days: int) -> tuple[int, str]:
    """Year, and month and day, of days since 1970."""
    if _FIRST <= days <= _LAST:
        text = date.fromordinal(days + _EPOCH).isoformat()
        return int(text[:4]), text[5:]
    era, of_era = divmod(days + 719_468, 146_097)
    years = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * years + years // 4 - years // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return era * 400 + years + (month <= 2), f"{month:02d}-{day:02d}"
