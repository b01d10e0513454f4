"""Every type of the catalog that takes the input: what is stored is what was sent, or it is refused.

Values at and beyond each edge, alone and in arrays of up to three dimensions, with modifiers and
through domains. The writing session has odd styles; a plain one reads as text, and psycopg in both
of its formats.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from abs_clients.arrow import is_list
from abs_clients.postgres import errors
from abs_clients.postgres.errors import to_abs_error
from abs_clients.postgres.name import TableName
from abs_core.errors import RefusedError, RowError, SchemaError
from abs_sinks.postgres.columns import checks, encode, type_mapping
from abs_sinks.postgres.columns.plan import CopyPlan, plan_columns
from abs_sinks.postgres.columns.table import read_table
from abs_sinks.postgres.columns.types import PgType
from abs_sinks.text import interval_parts
from tests.planted import planted
from tests.sample import seed
from tests.sinks.postgres.copied import Connection

pytestmark = pytest.mark.services

_TYPES = r"""
select format_type(t.oid, null), typmodin <> 0 from pg_type t
 where typtype in ('b', 'e', 'r', 'm', 'd', 'c') and typisdefined
   and (typcategory <> 'A' or typtype = 'd')
   and typnamespace in ('pg_catalog'::regnamespace, 'public'::regnamespace)
   and (typtype <> 'c' or exists (select from pg_class where oid = typrelid and relkind = 'c'))
 order by 1
"""
_MODIFIERS = ("(0)", "(1)", "(3)", "(6,2)")
_INTERVALS = ("interval year to month", "interval day", "interval second(2)", "interval(0)")
_OWN = """
create type mood as enum ('ok', 'bad'); create domain price as numeric(9,2);
create domain whole_second as timestamp(0); create domain short as varchar(3);
create domain nested_short as short; create domain numbers as int[];
create type pair as (at timetz(0), price numeric(5,2)); create domain pair_too as pair;
create type hours as range (subtype = time); create type zoned as range (subtype = timetz);
create type spans as range (subtype = interval); create type doubles as range (subtype = float8);
create type moneys as range (subtype = money); create type names as range (subtype = name)
"""

MIN, MAX = -(2**63), 2**63 - 1
MIN32, MAX32 = -(2**31), 2**31 - 1
_DAYS = (
    0,
    MIN32,
    MAX32,
    *(e + d for e in (-2_440_588, 2_145_042_905) for d in (-1, 0, 1)),
    -2147472691,
)
_TICKS = (0, 1, 10**6, -1, 1500, 59_700_000, MIN, -210_866_803_200_000_000,
          -210_866_803_200_000_001, MAX - 1)  # fmt: skip
_UUID = "01234567-89ab-cdef-0123-456789abcdef"
TEXTS = (
    b"", b"a", b"ok", b"abc", b"abcd", b"abc  ", b"a\0", b"\xff", "äöü".encode(), b"x" * 64, b"x" * 63,
    b"0", b"1", b"-1", b"1.005", b"1.01", b"4294967295", b"4294967296", b"18446744073709551616",
    b"99999999999999999999", b"12:00:00.1234567+02", b"12:00:00.1234564", b"12:00:00.5+02",
    b"12:00:00+02", b"2024-01-01 12:00:00.1234567", b"1.1234567 seconds", b"1.5 seconds",
    b"1 day 2 hours", b"-1 day 2 hours", b"-1 day +2 hours", b"12:00:00", b"2024-01-01 12:00:00+02",
    b"01/02/2024", b"[01/02/2024,02/02/2024)",
    b'["2024-01-01 00:00:00+02","2024-01-02 00:00:00Z")', b"(1,2),3",
    b"P1Y2M", b"PT1.1234567S", b"PT12E-8S", b"1 day", b"[1,3)", b"{[1,3),[5,7)}", b"empty",
    b'["2024-01-01 00:00:00.1234567","2024-01-02 00:00:00")',
    b'["2024-01-01 00:00:00","2024-01-02 00:00:00")',
    b'{["2024-01-01 00:00:00.1234567","2024-01-02 00:00:00")}', b"[2024-01-01,2024-01-02)",
    b"10.0.0.1/8", b"10.0.0.0/8", b"10.0.0.1", b"(1,2)", b"(1.5,-2)", b"<(1,2),3>",
    b"08:00:2b:01:02:03",
    b"0/16B3748", b"101", b"1011", b"{}", b'{"a": 1}', b'{"a": "secret-4711"', b"secret-4711", b"<a/>",
    _UUID.encode(), b"'a':1 'b':2", b"a & b", b"$.a", b"\\", b"a\tb\nc", b"NaN", b"infinity",
    b"[12:00:00.1234567,)", b"[12:00:00.1234567+02,)", b'["1.55 mons",)', b"1.3 years",
    b"(0.12345678901234567891,1)", b"[0.12345678901234567891,)", b"(12:00:00.6+02,1.239)", b"[1.239,)",
    b"600 ms", b"12:00:00.6+02",
)  # fmt: skip


def _drawn(count: int) -> list[bytes]:
    """Texts of forms that round somewhere: clocks, intervals, points, rows, and ranges of them."""
    chosen = random.Random(seed())

    def fraction() -> str:
        digits = "".join(chosen.choices("0123456789", k=chosen.choice((1, 2, 6, 7, 17))))
        return chosen.choice(("", "", f".{digits}", f".{digits[:6]}000"))

    def clock() -> str:
        zone = chosen.choice(("", "+02", "-05:30", "Z"))
        return f"{chosen.randrange(24):02}:{chosen.randrange(60):02}:07{fraction()}{zone}"

    def span() -> str:
        units = ("s", "sec", "ms", "us", "minutes", "hours", "days", "weeks", "mons", "years")
        parts = range(chosen.choice((1, 2)))
        return " ".join(f"{chosen.randrange(99)}{fraction()} {chosen.choice(units)}" for _ in parts)

    def number() -> str:
        return f"{chosen.choice(('', '-'))}{chosen.randrange(1000)}{fraction()}"

    def row() -> str:
        return f"({clock()},{number()})"

    def pair() -> str:
        return f"({number()},{number()})"

    def of(made: Callable[[], str]) -> str:
        return chosen.choice((made(), made(), f"[{made()},)", f"{{[{made()},)}}"))

    forms = (clock, span, number, row, pair)
    return [of(chosen.choice(forms)).encode() for _ in range(count)]


BINARIES = (b"", b"\0", b"\0" * 16, b"\xff" * 16, b"\\x00")
INPUTS: dict[str, pa.Array] = {
    "text": pa.array((*TEXTS, *_drawn(24)), pa.binary()).view(pa.string()),
    "bool": pa.array([True, False]),
    **{f"int{bits}": pa.array([-(2 ** (bits - 1)), 0, 2 ** (bits - 1) - 1], f"int{bits}")
       for bits in (8, 16, 32, 64)},
    "float32": pa.array([0.1, -0.0, math.inf, math.nan, 1e-45, 3.4028235e38], pa.float32()),
    "float64": pa.array([0.1, -0.0, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 2**53 + 0.0]),
    "decimal(4,2)": pa.array([Decimal("99.99"), Decimal("-0.01"), Decimal(0)], pa.decimal128(4, 2)),
    "decimal(9,0)": pa.array([Decimal(999999999), Decimal(-1)], pa.decimal128(9, 0)),
    "decimal(38,18)": pa.array([Decimal("9" * 20 + "." + "9" * 18), Decimal("1E-18")],
                               pa.decimal128(38, 18)),
    "date": pa.array(_DAYS, pa.int32()).view(pa.date32()),
    "wall clock": pa.array(_TICKS).view(pa.timestamp("us")),
    "moment": pa.array(_TICKS).view(pa.timestamp("us", "UTC")),
    "time": pa.array([0, 1, 500_000, 86_400_000_000, 86_400_000_001, -1]).view(pa.time64("us")),
    "duration": pa.array(_TICKS).view(pa.duration("us")),
    "interval": pa.array([(MAX32, MIN32, 1000), (0, 0, 1), (14, -3, 59_700_000_000)],
                         pa.month_day_nano_interval()),
    "binary": pa.array(BINARIES),
}  # fmt: skip


@pytest.fixture
def connection(shared_database: str) -> Iterator[Connection]:
    odd = (
        "-c DateStyle=SQL,DMY -c IntervalStyle=sql_standard -c TimeZone=Asia/Kolkata"
        " -c bytea_output=escape -c extra_float_digits=0 -c standard_conforming_strings=off"
        " -c client_min_messages=error"
    )
    with psycopg.connect(shared_database, autocommit=True, options=odd) as made:
        made.execute("drop owned by current_user cascade")
        made.execute(_OWN)
        yield made


@pytest.fixture
def reader(shared_database: str) -> Iterator[Connection]:
    plain = "-c DateStyle=ISO -c IntervalStyle=postgres -c TimeZone=UTC"
    with psycopg.connect(shared_database, autocommit=True, options=plain) as made:
        yield made


class Try:
    """Sends values of one input one by one into a column of one type, and reads each back."""

    def __init__(
        self, connection: Connection, reader: Connection, declared: str, depth: int
    ) -> None:
        self.connection, self.reader, self.depth = connection, reader, depth
        self.declared = declared
        connection.execute(
            f"drop table if exists t; create table t (v {declared}{'[]' * bool(depth)})"
        )
        self.table = read_table(connection, TableName.parse("t"))
        self.changed: list[str] = []
        self.stored = 0

    def all_of(self, values: pa.Array) -> None:
        for _ in range(self.depth):
            values = pa.ListArray.from_arrays(range(len(values) + 1), values)
        try:
            plan = plan_columns(pa.schema([("v", values.type)]), self.table)
        except SchemaError:
            return
        for row in range(len(values)):
            self._one(plan, values.slice(row, 1))

    def _one(self, plan: CopyPlan, value: pa.Array) -> None:
        leaf = value
        while is_list(leaf.type):
            leaf = leaf.flatten()
        self.connection.execute("begin; truncate t")
        try:
            encoder = plan.encoder()
            with self.connection.cursor().copy(plan.copy_statement()) as copy:
                copy.write(encoder.header())
                copy.write(encoder.encode(pa.record_batch({"v": value})))
                copy.write(encoder.finish())
            self.connection.execute("commit")
        except RowError:
            self.connection.execute("rollback")
        except psycopg.Error as error:
            self.connection.execute("rollback")
            told = to_abs_error(error, "copying")
            assert isinstance(told, RowError | RefusedError), told
            if (
                pa.types.is_string(leaf.type)
                and len(shown := _text_of(leaf)) > 4
                and shown in str(told)
            ):
                self.changed.append(f"{self.declared}: the error shows {shown}: {told}")
        else:
            self.stored += 1
            self._read_back(leaf)

    def _read_back(self, leaf: pa.Array) -> None:
        several = self.table.columns[0].type.element is not None
        source = "unnest((select v from t)) x" if several else "(select v from t) s(x)"
        (text,) = self.reader.execute(f"select x::text from {source}").fetchone() or ("",)
        if not self._same(leaf, text, source):
            self.changed.append(f"{self.declared}, {self.depth} dimensions: {leaf} is {text!r}")
        seen: list[Any] = []
        for binary in (True, False):
            try:
                seen += self.reader.execute("select v from t", binary=binary).fetchone() or ()
            except (psycopg.Error, ValueError):  # beyond Python's own range
                return
        if type(seen[0]) is type(seen[1]) and repr(seen[0]) != repr(seen[1]):  # psycopg knows it
            self.changed.append(f"{self.declared}: psycopg reads {seen[0]} and {seen[1]}")

    def _same(self, leaf: pa.Array, text: str, source: str) -> bool:
        arrow = leaf.type
        if pa.types.is_string(arrow):
            return self._same_text(_text_of(leaf), text)
        if pa.types.is_binary(arrow):
            kept = self.reader.execute(f"select replace(x::text, '-', '') from {source}").fetchone()
            sent = leaf[0].as_py().hex()
            return kept == ((sent if "uuid" in self.declared else f"\\x{sent}"),)
        if pa.types.is_temporal(arrow):
            return self._number(source, arrow) == _ticks(leaf)
        if pa.types.is_boolean(arrow):
            return bool(text == str(leaf[0].as_py()).lower())
        if pa.types.is_floating(arrow):
            sent, got = leaf[0].as_py(), float(text)
            kept = pa.scalar(got, arrow).as_py()
            return repr(kept) == repr(sent)
        return bool(Decimal(text) == leaf[0].as_py())

    def _same_text(self, sent: str, got: str) -> bool:
        """Text is kept. Of other values a plain session reads the same, and all digits are there."""
        leaf = self.table.columns[0].type.element or self.table.columns[0].type
        if leaf.name == "jsonb":
            return bool(json.loads(sent) == json.loads(got))
        if leaf.name == "numeric":  # the scale of a column adds zeros
            return sent == got or Decimal(sent) == Decimal(got)
        if leaf.category in ("S", "Z") or (leaf.takes_text and leaf.category != "D"):
            # A cast of char(n) to text drops its blanks.
            return got == (sent.rstrip() if leaf.name == "bpchar" else sent)
        base = "interval" if leaf.category == "T" else re.sub(r"\(.*?\)", "", self.declared)
        if leaf.category == "V":  # bit is bit(1), and a cast would cut
            base = self.declared
        try:
            parsed = self.reader.execute(f"select (%s::text)::{base}::text", [sent]).fetchone()
        except psycopg.DataError:
            return False
        times = leaf.bounds or leaf
        # Other forms of the same value, or the zone UTC.
        forms = leaf.category in ("D", "T", "R", "I") and times.name != "numeric"
        kept = (
            not re.search(r"\.\d{6}0*[1-9]|E-\d", sent) if forms else _digits(sent) == _digits(got)
        )
        if times.category == "T" and re.search(r"\.\d*[1-9]\d*\s*[^\d\s:sS+,)\]}-]", sent):
            kept = False  # of a unit that is rounded
        return parsed == (got,) and kept

    def _number(self, source: str, arrow: pa.DataType) -> tuple[int, ...]:
        if "interval" in self.declared:
            read = (
                "extract(year from x) * 12 + extract(month from x), extract(day from x),"
                " extract(hour from x) * 3600000000 + extract(minute from x) * 60000000"
                " + extract(microseconds from x)"
            )
        else:
            read = "0, 0, extract(epoch from x) * 1000000"
        row = self.reader.execute(f"select {read} from {source}").fetchone() or ()
        return tuple(int(part) if math.isfinite(part) else -1 for part in row)


def _text_of(leaf: pa.Array) -> str:
    return bytes(leaf.view(pa.binary())[0].as_py()).decode(errors="replace")


def _ticks(leaf: pa.Array) -> tuple[int, ...]:
    if leaf.type.equals(pa.month_day_nano_interval()):
        parts = interval_parts(leaf, "v")[0]
        return int(parts["months"]), int(parts["days"]), int(parts["nanos"]) // 1000
    if pa.types.is_date32(leaf.type):
        return 0, 0, leaf.view(pa.int32())[0].as_py() * 86_400_000_000
    return 0, 0, leaf.view(pa.int64())[0].as_py()


def _digits(text: str) -> list[str]:
    """Runs of digits without the zeros that say nothing; signs of numbers."""
    text = re.sub(r"(\.\d*?)0+\b", r"\1", text)
    return sorted(run.lstrip("0") for run in re.findall(r"\d+", text) if run.strip("0"))


def declared_types(connection: Connection, brackets: str) -> list[str]:
    found = [*_INTERVALS]
    for name, has_modifier in connection.execute(_TYPES).fetchall():
        for modifier in ("", *(_MODIFIERS if has_modifier else ())):
            before, zone, after = name.partition(" with")
            declared = f"{before}{modifier}{zone}{after}"
            try:
                connection.execute(f"create temporary table probe (v {declared}{brackets})")
                connection.execute("drop table probe")
            except psycopg.Error:  # a pseudo type, or another kind of modifier
                continue
            found.append(declared)
    return found


def changed(
    connection: Connection, reader: Connection, depth: int, *only: str
) -> tuple[list[str], int]:
    """The values that were stored as others, and how many were stored."""
    wrong, stored = [], 0
    for declared in only or declared_types(connection, "[]" if depth else ""):
        tried = Try(connection, reader, declared, depth)
        for values in INPUTS.values():
            tried.all_of(values)
        wrong += tried.changed
        stored += tried.stored
    return wrong, stored


_LEAVES = ("varchar(3)", "timestamp(0)", "date", "timestamptz", "interval(0)")


def test_no_type_of_the_catalog_changes_a_value_in_silence(
    connection: Connection, reader: Connection
) -> None:
    wrong, stored = changed(connection, reader, 0)
    assert wrong == [], "\n".join(wrong)
    assert stored > 500


def test_nor_do_elements_of_arrays_of_two_dimensions(
    connection: Connection, reader: Connection
) -> None:
    assert changed(connection, reader, 2, *_LEAVES)[0] == []


@pytest.mark.campaign
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_nor_do_arrays_of_any_type(connection: Connection, reader: Connection, depth: int) -> None:
    wrong, stored = changed(connection, reader, depth)
    assert wrong == [], "\n".join(wrong)
    assert stored > 500


def test_leaves_that_are_not_checked_are_found(connection: Connection, reader: Connection) -> None:
    original = checks.check_values

    def first_dimension_only(array: pa.Array, pg: PgType, column: str) -> None:
        if not (is_list(array.type) and is_list(array.type.value_type)):
            original(array, pg, column)

    for declared in _LEAVES:
        with planted((encode, "check_values", first_dimension_only)):
            assert changed(connection, reader, 2, declared)[0] == []


@pytest.mark.parametrize(
    "declared", ["name", "money", "oid", "interval year to month", "pair", "moneys", "names"]
)
def test_text_that_its_type_cuts_is_found(
    connection: Connection, reader: Connection, monkeypatch: pytest.MonkeyPatch, declared: str
) -> None:
    def planted(plain: pa.DataType, pg: PgType) -> Any:
        return type_mapping.Wire.TEXT, plain

    is_string = pa.types.is_string
    rules = [
        (holds, planted if holds is is_string else rule) for holds, rule in type_mapping._RULES
    ]
    monkeypatch.setattr(type_mapping, "_RULES", rules)
    assert changed(connection, reader, 0, declared)[0]


@pytest.mark.parametrize(
    "declared",
    [
        "timetz",
        "timetz(0)",
        "timetz(1)",
        "interval",
        "interval(0)",
        "tsrange",
        "tsmultirange",
        "xid",
        *("hours", "zoned", "spans", "point"),
    ],
)
def test_digits_that_nobody_looks_at_are_found(
    connection: Connection, reader: Connection, declared: str
) -> None:
    with planted((checks, "_check_parsed", lambda *_: None)):
        assert changed(connection, reader, 0, declared)[0] == []


def test_an_error_that_shows_a_value_is_found(connection: Connection, reader: Connection) -> None:
    for declared in ("mood", "inet", "int4range", "tsquery"):
        with planted((errors, "_without_value", lambda text, _: text), match="the error shows"):
            assert changed(connection, reader, 0, declared)[0] == []
