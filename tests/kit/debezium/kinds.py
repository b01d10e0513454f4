"""Every type of PostgreSQL that a source's column can have, and values at its limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SETTINGS = {
    "decimal": ("precise", "string", "double"),
    "time": (
        "adaptive",
        "adaptive_time_microseconds",
        "connect",
        "isostring",
        "microseconds",
        "nanoseconds",
    ),
    "binary": ("bytes", "base64", "base64-url-safe", "hex"),
    "hstore": ("json", "map"),
    "interval": ("numeric", "string"),
    "unknown": ("false", "true"),
}
"""The values of Debezium's settings that say how a value is sent."""

NAMES = {
    "decimal": "decimal.handling.mode",
    "time": "time.precision.mode",
    "binary": "binary.handling.mode",
    "hstore": "hstore.handling.mode",
    "interval": "interval.handling.mode",
    "unknown": "include.unknown.datatypes",
}
"""Debezium's names of them."""

LONG = 9000
"""Bytes that are stored beside the row, so an update that does not change them does not send them."""


@dataclass(frozen=True)
class Kind:
    """One type, the values that are recorded of it, and the setting that changes how it is sent.

    Args:
        long: an expression of a value that is stored beside the row.
        needs: an extension, or ``xml``: servers are built without it, too.
        note: which values these are, where others of the type are recorded apart.
    """

    type: str
    values: Sequence[str]
    setting: str = ""
    long: str | None = None
    needs: str | None = None
    note: str = ""

    @property
    def name(self) -> str:
        """The type, and which of its values, if only some."""
        return f"{self.type}, {self.note}" if self.note else self.type

    @property
    def table(self) -> str:
        """The name of the table that has one column of it."""
        name = self.name.replace("[]", "_array").replace('"', "quoted_").replace("-", "minus_")
        return "t_" + re.sub(r"[^a-z0-9]+", "_", name).strip("_")

    @property
    def key(self) -> tuple[str, ...]:
        return ("id",)

    def before(self) -> list[str]:
        """Statements before Debezium's snapshot: each value, NULL, one that is stored apart."""
        table, rows = self.table, list(enumerate(self.values, 1))
        made = [self.ddl(table)]
        made += [f"insert into {table} values ({number}, 0, {value})" for number, value in rows]
        made += [f"insert into {table} values (50, 0, null)"]
        if self.long:
            made += [f"alter table {table} alter v set storage external"]
            made += [f"insert into {table} values (60, 0, {self.long})"]
        return made

    def after(self) -> list[str]:
        """Statements while Debezium streams: each value again, and each kind of change."""
        table, rows = self.table, list(enumerate(self.values, 101))
        first, last = self.values[0], self.values[-1]
        made = [f"insert into {table} values ({number}, 0, {value})" for number, value in rows]
        made += [f"insert into {table} values (150, 0, null), (170, 0, {first}), (180, 0, {last})"]
        if self.long:
            made += [f"insert into {table} values (160, 0, {self.long})"]
            made += [f"update {table} set n = 1 where id in (60, 160)"]
        return [
            *made,
            f"update {table} set n = 1 where id = 1",
            f"update {table} set v = {first} where id = {len(rows)}",
            f"update {table} set v = {last} where id = 50",
            f"update {table} set v = null where id = 170",
            f"delete from {table} where id = 101",
            f"update {table} set id = 181, n = 2 where id = 180",
        ]

    def ddl(self, table: str, type: str | None = None) -> str:  # noqa: A002
        """The table's statement; ``type``: the column's, of a target that is not as the source."""
        return f"create table {table} (id int primary key, n int, v {type or self.type})"


PREPARE = """
create type mood as enum ('sad', 'ok', 'it''s, "so"');
create domain whole as int check (value > -1000000);
create domain price as numeric(10,2);
create domain label as text check (value <> 'never');
create domain moment as timestamp(3);
"""
"""The types that tables use, in a source and in a target."""

_TEXTS = ("''", "'plain'", "'quo\"te'' \\ {a,b} NULL'", "E'line\\nbreak\\ttab'", "'é中😀'", "' x '")
_LONG_TEXT = f"(select string_agg(md5(g::text), '') from generate_series(1, {LONG // 32}) g)"


def _long(value: str, count: int) -> str:
    return f"array(select {value} from generate_series(1, {count}) g)"


def _listed(type: str, *values: str) -> tuple[str, ...]:  # noqa: A002
    """Arrays of the values, with NULL and empty."""
    listed = ", ".join(values)
    return (
        f"'{{}}'::{type}",
        f"array[{listed}]::{type}",
        f"array[null, {values[0]}]::{type}",
        f"array[{values[-1]}]::{type}",
    )


def _each(type: str, values: Sequence[str]) -> tuple[str, ...]:  # noqa: A002
    """Arrays of the values, each alone, too."""
    return (*_listed(type, *values), *(f"array[{value}]::{type}" for value in values))


def _numbers(precision: int, scale: int, *more: str) -> tuple[str, ...]:
    digits = "9" * precision
    whole = len(digits) - scale
    if scale < 0:
        largest = digits + "0" * -scale
    elif whole <= 0:
        largest = "0." + "0" * -whole + digits
    else:
        largest = digits[:whole] + "." + digits[whole:] if scale else digits
    return ("0", f"'{largest}'", f"'-{largest}'", *more)


_DATES = (
    "'2024-02-29'",
    "'1969-12-31'",
    "'1583-01-01'",
    "'12024-02-29'",
    "'infinity'",
    "'-infinity'",
    "'1900-01-01'",
    "'9999-12-31'",
)
_OLD_DATES = (
    "'1582-10-10'",
    "'0001-01-01'",
    "'0044-03-15'",
    "'0044-03-15 BC'",
    "'4714-11-24 BC'",
)
_STAMPS = (
    "'2024-02-29 12:34:56.789012'",
    "'1969-12-31 23:59:59.999999'",
    "'1970-01-01 00:00:00'",
    "'1900-01-01 01:02:03.456789'",
    "'2024-02-29 12:34:56.789'",
    "'2024-02-29 12:34:56'",
)
_FAR = (
    "'2262-04-12 00:00:00'",
    "'9999-12-31 23:59:59'",
    "'12024-02-29 01:02:03.456789'",
    "'infinity'",
    "'-infinity'",
)
"""Where Debezium's nanoseconds end, and what has no number."""
_OLD = (
    "'1582-10-10 01:02:03.456789'",
    "'0001-01-01 00:00:00'",
    "'0044-03-15 12:00:00.5'",
    "'0044-03-15 12:00:00.5 BC'",
    "'4714-11-24 00:00:00 BC'",
)


def _zoned(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        value
        if "inf" in value
        else value.replace(" BC'", "'")[:-1] + "+00" + (" BC'" if "BC" in value else "'")
        for value in values
    )


_ZONED = (*_zoned(_STAMPS), "'2024-07-01 12:00:00.123456+05:45'")
_CLOCKS = (
    "'00:00:00'",
    "'12:34:56.789012'",
    "'12:34:56.789'",
    "'12:34:56'",
    "'23:59:59.999999'",
    "'24:00:00'",
    "'00:00:00.000001'",
)
_ZONED_CLOCKS = (
    "'00:00:00+00'",
    "'12:34:56.789012+05:45'",
    "'12:34:56.789+05:45'",
    "'06:49:56.789+00'",
    "'06:49:56.789012+00'",
    "'23:59:59.999999-12'",
    "'24:00:00+14'",
)
_SPANS = (
    "'1 year 2 mons 3 days 04:05:06.789012'",
    "'-1 mons'",
    "'0'",
    "'23:59:59.999999'",
    "'-3 days +04:00:00'",
    "'1 microsecond'",
    "'100 years'",
    "'40 days'",
    "'30 days 10:30:00'",
    "'1 mon'",
    "'960:00:00'",
    "'-178000000 years'",
)
_UUIDS = ("'6f1e4b0a-1111-4222-8333-444455556666'", "'00000000-0000-0000-0000-000000000000'")


def _all() -> Iterator[Kind]:
    yield Kind("smallint", ("-32768", "0", "32767"))
    yield Kind("integer", ("-2147483648", "0", "2147483647"))
    yield Kind("bigint", ("-9223372036854775808", "0", "9223372036854775807", "9007199254740993"))
    for precision, scale, more in (
        (10, 2, ("123.45", "-0.01", "1.10", "99.99")),
        (12, 4, ("7.5", "-0.0001")),
        (5, 0, ("255", "-129")),
        (18, 18, ("0.1",)),
        (20, 0, ("1234",)),
        (38, 0, ("128",)),
        (38, 10, ("-0.0000000001",)),
        (40, 5, ("1.5",)),
        (60, 30, ("0.000000000000000000000000000001",)),
        (1000, 500, ("1.5",)),
        (5, -2, ("12300", "100", "-4500")),
        (3, 5, ("0.00001",)),
    ):
        yield Kind(f"numeric({precision},{scale})", _numbers(precision, scale, *more), "decimal")
    free = (
        "0",
        "0.00",
        "1.50",
        "-12.345",
        "1e40",
        "12345678901234567890123456789012345678901234567890.0123456789",
        "1e-30",
        "100",
        "1e1000",
        "-1e-200",
        "1.5",
        "12345678901234567890123456789012345678901234567890.01",
    )
    yield Kind(
        "numeric",
        free,
        "decimal",
        long="(select string_agg((g % 10)::text, '')::numeric from generate_series(1, 12000) g)",
    )
    floats = ("0", "'-0'", "0.1", "-2.5", "'NaN'", "'Infinity'", "'-Infinity'")
    yield Kind("real", (*floats, "3.4028235e38", "1e-45", "16777217"))
    yield Kind(
        "double precision", (*floats, "1.7976931348623157e308", "5e-324", "123456789.123456789")
    )
    yield Kind(
        "money", ("0", "'$1234.56'", "'-92233720368547758.08'", "'92233720368547758.07'"), "decimal"
    )
    yield Kind("text", (*_TEXTS, "'__debezium_unavailable_value_'"), long=_LONG_TEXT)
    yield Kind("varchar(20)", _TEXTS[:3])
    yield Kind("varchar", _TEXTS, long=_LONG_TEXT)
    yield Kind("char(5)", ("''", "'a'", "'abcde'", "'é'"))
    yield Kind("bpchar", ("''", "'a  '", "'abcde'"))
    yield Kind('"char"', ("'x'", "''"))
    yield Kind("name", ("''", "'plain'"), "unknown")
    yield Kind("citext", ("''", "'AbC'", "'abc'"), long=_LONG_TEXT, needs="citext")
    yield Kind("boolean", ("true", "false"))
    yield Kind("date", _DATES, "time")
    yield Kind("date", _OLD_DATES, "time", note="before 1583")
    for precision in range(7):
        yield Kind(f"time({precision})", _CLOCKS, "time")
        yield Kind(f"timetz({precision})", _ZONED_CLOCKS, "time")
        yield Kind(f"timestamp({precision})", _STAMPS, "time")
        yield Kind(f"timestamptz({precision})", _ZONED, "time")
    yield Kind("time", _CLOCKS, "time")
    yield Kind("timestamp", _STAMPS, "time")
    yield Kind("timestamptz", _ZONED, "time")
    for note, values in (("after 2261", _FAR), ("before 1583", _OLD)):
        for kind in ("timestamp", "timestamp(3)"):
            yield Kind(kind, values, "time", note=note)
            yield Kind(f"{kind}[]", _each(f"{kind}[]", values), "time", note=note)
        for kind in ("timestamptz", "timestamptz(3)"):
            yield Kind(kind, _zoned(values), "time", note=note)
        kind = "timestamptz[]"
        yield Kind(kind, _each(kind, _zoned(values)), "time", note=note)
    yield Kind("interval", _SPANS, "interval")
    yield Kind("interval(3)", _SPANS[:4], "interval")
    yield Kind("uuid", _UUIDS)
    yield Kind(
        "json",
        ("'null'", '\'{"a": 1.10, "b":  [1, null, "é"]}\'', "'\"x\"'", "'1e2'"),
        long=f"to_json({_LONG_TEXT})",
    )
    yield Kind(
        "jsonb",
        ("'null'", '\'{"a": 1.10, "b": [1, null, "é"]}\'', "'\"x\"'", "'12345678901234567890.0'"),
        long=f"to_jsonb({_LONG_TEXT})",
    )
    yield Kind(
        "xml",
        ("'<a>1</a>'", "'<a b=\"1\"/>'", "''"),
        long=f"('<a>' || {_LONG_TEXT} || '</a>')::xml",
        needs="xml",
    )
    yield Kind(
        "bytea",
        ("''", "'\\x00ff10'", "'abc'", "'\\xfbff'", "'\\xdeadbeef'"),
        "binary",
        long=f"{_LONG_TEXT}::bytea",
    )
    yield Kind("mood", ("'sad'", "'it''s, \"so\"'"))
    yield Kind("bit(1)", ("B'0'", "B'1'"))
    yield Kind("bit(9)", ("B'100000001'", "B'000000000'", "B'011111110'"))
    yield Kind("bit(64)", ("B'" + "10" * 32 + "'", "B'" + "1" * 64 + "'"))
    yield Kind("bit varying(20)", ("B''", "B'1011'", "B'00000001'", "B'" + "1" * 20 + "'"))
    yield Kind(
        "bit varying", ("B''", "B'1011'", "B'00000001'"), long="repeat('10', 60000)::bit varying"
    )
    yield Kind(
        "hstore",
        ("''", "'a=>1, b=>NULL'", '\'"q\\""=>"x, y"\''),
        "hstore",
        needs="hstore",
        long=f"hstore('k', {_LONG_TEXT})",
    )
    yield Kind("inet", ("'10.0.0.1/24'", "'10.0.0.1'", "'::1'", "'2001:db8::/32'"))
    yield Kind("cidr", ("'10.0.0.0/24'", "'10.0.0.1/32'", "'2001:db8::/32'"))
    yield Kind("macaddr", ("'08:00:2b:01:02:03'",))
    yield Kind("macaddr8", ("'08:00:2b:01:02:03:04:05'",))
    yield Kind("ltree", ("'a.b.c'", "''"), needs="ltree")
    yield Kind("point", ("'(1.5,2.5)'", "'(-0.1,1e300)'", "'(NaN,Infinity)'"))
    for shape, value in (
        ("box", "'(1,1),(0,0)'"),
        ("line", "'{1,2,3}'"),
        ("lseg", "'[(0,0),(1,1)]'"),
        ("path", "'((0,0),(1,1))'"),
        ("polygon", "'((0,0),(1,1),(1,0))'"),
        ("circle", "'<(1,1),2>'"),
        ("tsvector", "'a:1 b:2'"),
        ("tsquery", "'a & b'"),
        ("pg_lsn", "'16/B374D848'"),
        ("int4multirange", "'{[1,3),[5,7)}'"),
        ("jsonpath", "'$.a'"),
        ("pg_snapshot", "'10:20:10,14,15'"),
    ):
        yield Kind(shape, (value,), "unknown")
    yield Kind("int4range", ("'[1,5)'", "'empty'", "'(,5)'"))
    yield Kind("int8range", ("'[1,9223372036854775807)'", "'empty'"))
    yield Kind("numrange", ("'[1.50,2.5]'", "'(,)'"))
    yield Kind("tsrange", ("'[2026-01-01 00:00:00,2026-02-01 01:02:03.456789)'", "'(,infinity]'"))
    yield Kind("tstzrange", ("'[2026-01-01 00:00:00+00,2026-02-01 01:02:03.456789+00)'", "'empty'"))
    yield Kind("daterange", ("'[2026-01-01,2026-02-01)'", "'[0044-03-15 BC,infinity)'"))
    yield Kind("oid", ("0", "4294967295"))
    yield Kind("whole", ("-5", "2147483647"))
    yield Kind("price", ("123.45", "-0.01"), "decimal")
    yield Kind("label", _TEXTS, long=_LONG_TEXT)
    yield Kind("moment", _STAMPS[:4], "time")
    yield Kind(
        "smallint[]",
        _listed("smallint[]", "-32768", "32767"),
        long=_long("(g % 1000)::smallint", 6000),
    )
    yield Kind(
        "integer[]",
        (*_listed("integer[]", "-2147483648", "7"),),
        long=_long("g", 3000),
    )
    yield Kind(
        "bigint[]",
        _listed("bigint[]", "-9223372036854775808", "9007199254740993"),
        long=_long("g::bigint", 3000),
    )
    yield Kind(
        "numeric(10,2)[]",
        (*_listed("numeric(10,2)[]", "123.45", "-0.01"), "array[1.10, 2]"),
        "decimal",
        long=_long("(g / 4.0)::numeric(10,2)", 2000),
    )
    yield Kind(
        "numeric(40,5)[]",
        _listed("numeric(40,5)[]", "1.5", "'" + "9" * 35 + ".99999'"),
        "decimal",
        long=_long("(g / 4.0)::numeric(40,5)", 2000),
    )
    yield Kind(
        "numeric[]",
        (*_listed("numeric[]", "1.51", "-12.345", "1e40"), "array[2.0]", "array[2]"),
        "decimal",
        long=_long("g + 0.25", 2000),
    )
    yield Kind(
        "real[]", _listed("real[]", "0.1", "'NaN'", "'Infinity'"), long=_long("g / 3.0::real", 4000)
    )
    yield Kind(
        "double precision[]",
        _listed("double precision[]", "0.1", "'NaN'", "'-Infinity'"),
        long=_long("g / 3.0::float8", 2000),
    )
    yield Kind(
        "text[]",
        (*_listed("text[]", *_TEXTS[1:]), "array['']"),
        long=_long("md5(g::text)", 500),
    )
    yield Kind(
        "varchar(40)[]",
        _listed("varchar(40)[]", *_TEXTS[1:3]),
        long=_long("md5(g::text)::varchar(40)", 500),
    )
    yield Kind(
        "char(5)[]", _listed("char(5)[]", "'a'", "'abcde'"), long=_long("'abcde'::char(5)", 3000)
    )
    yield Kind(
        "citext[]",
        _listed("citext[]", "'AbC'", "'abc'"),
        needs="citext",
        long=_long("md5(g::text)::citext", 500),
    )
    yield Kind("boolean[]", _listed("boolean[]", "true", "false"), long=_long("g % 2 = 0", 9000))
    yield Kind(
        "date[]",
        _each("date[]", _DATES),
        "time",
        long=_long("date '2000-01-01' + g", 3000),
    )
    yield Kind(
        "time[]",
        _each("time[]", _CLOCKS),
        "time",
        long=_long("time '00:00' + g * interval '1 second'", 2000),
    )
    yield Kind(
        "timetz[]",
        _each("timetz[]", _ZONED_CLOCKS),
        "time",
        long=_long("timetz '00:00+00' + g * interval '1 second'", 2000),
    )
    yield Kind(
        "timestamp[]",
        _each("timestamp[]", _STAMPS),
        "time",
        long=_long("timestamp '2000-01-01' + g * interval '1 hour'", 2000),
    )
    yield Kind(
        "timestamp(3)[]",
        _listed("timestamp(3)[]", *_STAMPS[:4]),
        "time",
        long=_long("(timestamp '2000-01-01' + g * interval '1 hour')::timestamp(3)", 2000),
    )
    yield Kind(
        "timestamptz[]",
        _each("timestamptz[]", _ZONED),
        "time",
        long=_long("timestamptz '2000-01-01 00:00:00+00' + g * interval '1 hour'", 2000),
    )
    yield Kind(
        "interval[]",
        _each("interval[]", _SPANS),
        "interval",
        long=_long("g * interval '1 hour'", 2000),
    )
    yield Kind("uuid[]", _listed("uuid[]", *_UUIDS), long=_long("md5(g::text)::uuid", 900))
    yield Kind(
        "json[]",
        _listed("json[]", "'{\"a\": 1.10}'", "'\"x\"'"),
        long=_long("to_json(md5(g::text))", 500),
    )
    yield Kind(
        "jsonb[]",
        _listed("jsonb[]", "'{\"a\": 1.10}'", "'\"x\"'"),
        long=_long("to_jsonb(md5(g::text))", 500),
    )
    yield Kind(
        "xml[]",
        _listed("xml[]", "'<a>1</a>'", "'<b/>'"),
        long=_long("('<a>' || md5(g::text) || '</a>')::xml", 500),
        needs="xml",
    )
    yield Kind(
        "bytea[]",
        _listed("bytea[]", "'\\x00ff10'", "''", "'\\xfbff'"),
        "binary",
        long=_long("md5(g::text)::bytea", 500),
    )
    yield Kind(
        "mood[]", _listed("mood[]", "'ok'", "'it''s, \"so\"'"), long=_long("'ok'::mood", 5000)
    )
    yield Kind(
        "bit(9)[]",
        _listed("bit(9)[]", "B'100000001'", "B'011111110'"),
        long=_long("B'100000001'::bit(9)", 3000),
    )
    yield Kind(
        "hstore[]",
        _listed("hstore[]", "'a=>1'::hstore", "''"),
        "hstore",
        needs="hstore",
        long=_long("hstore('k', md5(g::text))", 500),
    )
    yield Kind(
        "inet[]",
        _listed("inet[]", "'10.0.0.1/24'", "'::1'"),
        long=_long("inet '10.0.0.1' + g", 3000),
    )
    yield Kind("cidr[]", _listed("cidr[]", "'10.0.0.0/24'", "'2001:db8::/32'"))
    yield Kind("macaddr[]", _listed("macaddr[]", "'08:00:2b:01:02:03'"))
    yield Kind("ltree[]", _listed("ltree[]", "'a.b.c'", "'d'"), needs="ltree")
    yield Kind("money[]", _listed("money[]", "'$1234.56'", "'-$0.01'"), "decimal")
    yield Kind("oid[]", _listed("oid[]", "0", "4294967295"), long=_long("g::oid", 4000))
    yield Kind("int4range[]", _listed("int4range[]", "'[1,5)'", "'empty'"))
    yield Kind(
        "tstzrange[]",
        _listed("tstzrange[]", "'[2026-01-01 00:00:00+00,2026-02-01 01:02:03.456789+00)'"),
    )
    yield Kind("point[]", _listed("point[]", "'(1.5,2.5)'"))
    yield Kind("whole[]", _listed("whole[]", "5", "-7"), "unknown", long=_long("g::whole", 4000))
    not_finite: dict[str, tuple[str, ...]] = {
        "numeric(10,2)": ("'NaN'", "1"),
        "numeric": ("'NaN'", "'Infinity'", "'-Infinity'", "1"),
    }
    for kind, several in not_finite.items():
        yield Kind(kind, several, "decimal", note="not finite")
        yield Kind(f"{kind}[]", _listed(f"{kind}[]", *several), "decimal", note="not finite")
    yield Kind("date[]", _each("date[]", _OLD_DATES), "time", note="before 1583")
    last = "'294276-12-31 23:59:59.999999'"
    yield Kind("timestamp", (last,), "time", note="after 294246")
    yield Kind("timestamptz", _zoned([last]), "time", note="after 294246")
    two = "of two dimensions"
    yield Kind("integer[]", ("'{{1,2},{3,4}}'", "'{{5,6},{7,8}}'"), note=two)
    yield Kind("text[]", ("'{{a,b},{c,d}}'", "'{{e,f},{g,h}}'"), note=two)
    yield Kind("integer[]", ("'[5:6]={1,2}'", "'{1,2}'"), note="with bounds")


KINDS = tuple(_all())
