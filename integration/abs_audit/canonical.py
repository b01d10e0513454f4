"""SQL that brings two carriers of the same value to one canonical value.

Decisions that an auditor must know:

- Floats compare as IEEE doubles; a 32-bit one is widened, never the other way round. NaN equals NaN
  whatever its bits, and -0.0 equals 0.0: as PostgreSQL, Spark and duckdb order and group them.
- Integers and decimals compare as exact numbers: 1, 1.0 and 1.00 are equal.
- An integer beside a float compares as a float, if there is one that is equal to it.
- A timestamp is an instant; one without a zone is read in UTC, and a date begins in UTC.
  Nanoseconds count where one side has them: 12:00:00.000000001 is not 12:00:00.
- Text compares by code point: no collation, no normalisation, no padding. '' is not NULL.
- An interval compares as months, days and microseconds, each by itself: a month is not 30 days.
  duckdb cuts off the nanoseconds of a duration.
- Text of an untyped file takes the other side's type, if that loses nothing; else it is an error.
"""

from __future__ import annotations

from abs_audit.families import Family, Type

MACROS = (
    # duckdb writes a decimal without digits before the point as .5
    """create or replace temp macro trimmed_decimal(t) as
       case when t[1] = '.' or t[1:2] = '-.'
            then rtrim(rtrim(replace(t, '.', '0.'), '0'), '.')
            when contains(t, '.') then rtrim(rtrim(t, '0'), '.') else t end""",
    # The Python function is called only for what is not in plain notation.
    r"""create or replace temp macro parsed_decimal(t) as
       case when regexp_full_match(t, '-?(0|[1-9][0-9]*)(\.[0-9]+)?')
            then case when trimmed_decimal(t) = '-0' then '0' else trimmed_decimal(t) end
            else plain_decimal(t) end""",
    # For text that may be a number or not: what is none, or not in plain notation, stays.
    r"""create or replace temp macro scaleless(t) as
       case when regexp_full_match(t, '-?(0|[1-9][0-9]*)\.[0-9]+')
            then parsed_decimal(t) else t end""",
    # epoch_ns and epoch_us of an infinite timestamp are NULL.
    """create or replace temp macro or_infinite(ns, t) as
       case when t is null then null when ns is not null then ns
            when t > '2000-01-01' then 170141183460469231731687303715884105727::hugeint
            else -170141183460469231731687303715884105727::hugeint end""",
    r"""create or replace temp macro parsed_instant(t) as
       case when regexp_matches(t, '\.[0-9]{6}[0-9]*[1-9]')
            then error('more digits of a second than the other side can hold: ' || t)
            else cast(cast(t as timestamptz) as timestamp) end""",
    """create or replace temp macro exact_double(n) as
       case when cast(cast(n as double) as hugeint) = n or n is null then cast(n as double)
            else error('an integer that no float is equal to: ' || n) end""",
    """create or replace temp macro parsed_date(t) as
       case when cast(t as timestamp) = date_trunc('day', cast(t as timestamp))
              or not isfinite(cast(t as timestamp))
            then cast(t as date)
            when t is not null then error('a date with a time of day: ' || t) end""",
)


def canonical(column: str, source: Type, common: Type, index: int) -> str:
    """SQL expression for the canonical value of ``column``.

    Args:
        source: how the relation carries it.
        common: ``meet`` of both sides' types.
        index: position of the column; names its function for JSON text, see ``nested``.
    """
    match common.family:
        case Family.INTEGER:
            return f"cast({column} as {'bigint' if common.precision == 64 else 'hugeint'})"
        case Family.DECIMAL:
            return _decimal(column, source)
        case Family.FLOAT:
            if source.family is Family.INTEGER:
                return f"exact_double({column})"
            width = "float" if common.precision == 32 else "double"
            double = f"cast(cast({column} as {width}) as double)"
            return f"case when isnan({double}) then 'nan'::double else {double} + 0.0::double end"
        case Family.INSTANT:
            return _instant(column, source, common)
        case Family.DATE if source.family is Family.UNTYPED:
            return f"parsed_date({column})"
        case Family.TIME:
            return f"cast({column} as {'time_ns' if common.precision == 9 else 'time'})"
        case Family.UUID:
            text = (
                f"hex({column})" if source.family is Family.BINARY else f"cast({column} as varchar)"
            )
            return f"coalesce(cast(try_cast({text} as uuid) as varchar), {text})"
        case Family.JSON | Family.LIST | Family.STRUCT | Family.MAP:
            return f"{json_function(index)}({column})"
        case _:
            return f"cast({column} as {_PLAIN[common.family]})"


_PLAIN = {
    Family.BOOLEAN: "boolean",
    Family.TEXT: "varchar",
    Family.BINARY: "blob",
    Family.DATE: "date",
    Family.INTERVAL: "varchar",
}


def json_function(index: int) -> str:
    """Name of the SQL function that canonicalises the JSON text of column ``index``."""
    return f"canonical_json_{index}"


def as_text(column: str, common: Type) -> str:
    """The canonical value as text; different values have different texts."""
    if common.family is Family.BINARY:
        return f"hex({column})"
    return f"cast({column} as varchar)"


def _decimal(column: str, source: Type) -> str:
    if source.family is Family.UNTYPED:
        return f"parsed_decimal({column})"
    text = f"cast({column} as varchar)"
    return text if source.family is Family.INTEGER else f"trimmed_decimal({text})"


def _instant(column: str, source: Type, common: Type) -> str:
    if common.precision == 9:
        if source.precision == 9:
            return f"or_infinite(cast(epoch_ns({column}) as hugeint), {column})"
        if source.family is Family.UNTYPED:
            return f"cast(epoch_ns(cast({column} as timestamp_ns)) as hugeint)"
        naive = f"cast({column} as timestamp)"
        return f"or_infinite(cast(epoch_us({naive}) as hugeint) * 1000, {naive})"
    if source.family is Family.UNTYPED:
        return f"parsed_instant({column})"
    return f"cast({column} as timestamp)"
