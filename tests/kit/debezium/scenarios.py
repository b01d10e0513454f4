"""Tables whose shape changes while Debezium reads them, and other tables that copies got wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Scenario:
    """A source's table and its history.

    Args:
        name: where a type's stands.
        source: its columns at first; ``{t}`` in statements is the table's name.
        statements: before Debezium's snapshot.
        changes: statements while it streams.
        target: the columns of the target; default: those at first.
        key: of the target.
        given: options of ``debezium`` for every encoding.
        bare: those for events without schema, by the group of settings.
        groups: of settings in which it is recorded.
    """

    name: str
    source: str
    statements: Sequence[str]
    changes: Sequence[str]
    target: str = ""
    key: Sequence[str] = ("id",)
    given: Mapping[str, Any] = field(default_factory=dict)
    bare: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    needs: str | None = None
    setting: str = "group"
    groups: Sequence[str] = ("0", "1")

    @property
    def table(self) -> str:
        return "s_" + self.name.replace(" ", "_")

    def before(self) -> list[str]:
        """Statements before Debezium's snapshot."""
        made = f"create table {self.table} ({self.source})"
        return [made, *(text.replace("{t}", self.table) for text in self.statements)]

    def after(self) -> list[str]:
        """Statements while Debezium streams."""
        return [text.replace("{t}", self.table) for text in self.changes]

    def ddl(self, table: str, type: str | None = None) -> str:  # noqa: A002
        """The target's statement; ``type``: other columns than the scenario's."""
        return f"create table {table} ({type or self.target or self.source})"


def _values(*rows: str) -> str:
    return "insert into {t} values " + ", ".join(f"({row})" for row in rows)


_ALL = {
    "small": ("smallint", "-32768"),
    "whole": ("integer", "2147483647"),
    "big": ("bigint", "-9223372036854775808"),
    "price": ("numeric(12,2)", "-1234567890.12"),
    "wide": ("numeric(60,30)", "123456789012345678901234567890.000000000000000000000000000001"),
    "free": ("numeric", "1e40"),
    "real": ("real", "'NaN'"),
    "double": ("double precision", "'-Infinity'"),
    "ok": ("boolean", "true"),
    "name": ("text", "E'é😀\\\\ \\n\\t\"'"),
    "code": ("varchar(20)", "''"),
    "fixed": ("char(5)", "'ab'"),
    "day": ("date", "'infinity'"),
    "at0": ("timestamp(0)", "'2024-02-29 12:34:56'"),
    "at3": ("timestamp(3)", "'0044-03-15 12:00:00.125 BC'"),
    "at6": ("timestamp", "'12024-02-29 01:02:03.456789'"),
    "zoned": ("timestamptz", "'-infinity'"),
    "clock": ("time", "'23:59:59.999999'"),
    "u": ("uuid", "'6f1e4b0a-1111-4222-8333-444455556666'"),
    "doc": ("jsonb", "'{\"a\": [1.10, null]}'"),
    "raw": ("bytea", "'\\xfbff00'"),
    "mood": ("mood", "'it''s, \"so\"'"),
    "nums": ("integer[]", "array[1, null, -3]"),
    "tags": ("text[]", "array['a', '', 'q\"']"),
    "prices": ("numeric(12,2)[]", "array[1.10, -0.01]"),
    "big_text": ("text", "repeat(md5('1'), 300)"),
    "big_nums": ("integer[]", "array(select g from generate_series(1, 3000) g)"),
}
"""A table as people have them: every type that must be copied exactly."""

_COLUMNS = ", ".join(f"{name}_ {kind}" for name, (kind, _) in _ALL.items())
_ROW = ", ".join(value for _, value in _ALL.values())
_EXTERNAL = (
    "alter table {t} alter big_text_ set storage external, alter big_nums_ set storage external"
)
_HISTORY = (
    "update {t} set whole_ = 5 where id in (1, 2)",
    "update {t} set id = 7 where id = 3",
    "delete from {t} where id = 4",
)
_BARE_ALL: Mapping[str, Mapping[str, Any]] = {
    "0": {
        "decimals": "precise",
        "scales": {"price_": 2, "wide_": 30, "prices_": 2},
        "times": "adaptive",
        "milliseconds": ("at0_", "at3_"),
        "binary": "bytes",
    },
    "1": {
        "decimals": "string",
        "times": "adaptive_time_microseconds",
        "milliseconds": ("at0_", "at3_"),
        "binary": "base64",
    },
}

SCENARIOS = (
    Scenario(
        "all",
        f"id int primary key, {_COLUMNS}",
        [_EXTERNAL, _values(f"1, {_ROW}")],
        [
            *(_values(f"{key}, {_ROW}") for key in (2, 4)),
            "insert into {t} (id) values (3)",
            *_HISTORY,
        ],
        bare=_BARE_ALL,
    ),
    Scenario(
        "full rows",
        f"id int primary key, {_COLUMNS}, halves smallint[]",
        [
            f"{_EXTERNAL}, alter halves set storage external, replica identity full",
            _values(
                f"1, {_ROW}, array(select (g % 1000)::smallint from generate_series(1, 6000) g)"
            ),
        ],
        [_HISTORY[0], "update {t} set id = 8 where id = 1"],
        bare={
            group: {**given, "milliseconds": ("at0_", "at3_")} for group, given in _BARE_ALL.items()
        },
    ),
    Scenario(
        "scale changed",
        "id int primary key, price numeric(10,2)",
        [_values("1, 123.45", "2, 750.00")],
        [
            _values("3, 99.99"),
            "alter table {t} alter price type numeric(12,4)",
            _values("4, 7.5"),
        ],
        "id int primary key, price numeric(12,4)",
        bare={"0": {"decimals": "precise", "scales": {"price": 2}}, "1": {"decimals": "string"}},
    ),
    Scenario(
        "precision changed",
        "id int primary key, at timestamp(3)",
        [_values("1, '2024-02-29 12:34:56.789'", "2, '56132-09-17 06:26:29.012'")],
        ["alter table {t} alter at type timestamp(6)", _values("3, '2024-02-29 12:34:56.789012'")],
        "id int primary key, at timestamp(6)",
        bare={
            group: {"times": times, "milliseconds": ("at",)}
            for group, times in (("0", "adaptive"), ("1", "adaptive_time_microseconds"))
        },
    ),
    Scenario(
        "type changed",
        "id int primary key, v int",
        [_values("1, 5")],
        [
            "alter table {t} alter v type bigint",
            _values("2, 9007199254740993"),
            "alter table {t} alter v type text",
            _values("3, 'x'"),
        ],
        "id int primary key, v text",
    ),
    Scenario(
        "column added",
        "id int primary key, v text",
        [_values("1, 'a'")],
        [
            "alter table {t} add w int default 7",
            _values("2, 'b', 9"),
            "update {t} set v = 'c' where id = 1",
        ],
        "id int primary key, v text, w int",
    ),
    Scenario(
        "column dropped",
        "id int primary key, v text, w int",
        [_values("1, 'a', 1")],
        ["alter table {t} drop w", _values("2, 'b'")],
        "id int primary key, v text",
    ),
    Scenario(
        "column renamed",
        "id int primary key, v text",
        [_values("1, 'a'")],
        ["alter table {t} rename v to w", _values("2, 'b'")],
        "id int primary key, w text",
    ),
    Scenario(
        "key of two",
        "tenant int, id int, v text, primary key (tenant, id)",
        [_values("1, 1, 'a'", "1, 2, 'b'", "2, 1, 'c'")],
        [
            "update {t} set v = 'd' where tenant = 1 and id = 1",
            "delete from {t} where tenant = 2",
            "update {t} set tenant = 3 where id = 2",
            _values("2, 1, 'e'"),
        ],
        key=("tenant", "id"),
    ),
    Scenario(
        "names",
        "id int primary key, op text, lsn bigint, unchanged text, before text, after text, source text,"
        " payload text, schema text, ts_ms bigint",
        [_values("1, 'refund', 42, 'no', 'b', 'a', 's', 'p', 'x', 5")],
        [
            _values("2, 'sale', 1, 'yes', null, null, null, null, null, 0"),
            "update {t} set op = 'd' where id = 1",
            _values("3, 'd', 7, null, 'b', 'a', 's', 'p', 'x', 1"),
            "delete from {t} where id = 3",
        ],
        given={"names": ("_op", "_lsn", "_unchanged")},
    ),
    Scenario(
        "our names",
        "id int primary key, op text, lsn bigint, unchanged text",
        [_values("1, 'refund', 42, 'no'")],
        [_values("2, 'sale', 1, 'yes'"), "update {t} set op = 'd' where id = 1"],
    ),
    Scenario(
        "defaults",
        "id int primary key, v text default 'dflt', n int default 7, at timestamp default '2020-01-01'",
        [_values("1, null, null, null", "2, default, default, default")],
        [
            _values("3, 'set', 1, '2024-01-01'"),
            "update {t} set v = null where id = 3",
            _values("4, null, null, null", "5, default, default, default"),
        ],
        bare={
            group: {"times": times, "milliseconds": ()}
            for group, times in (("0", "adaptive"), ("1", "adaptive_time_microseconds"))
        },
    ),
    Scenario(
        "key of numerics",
        "id numeric primary key, v text",
        [_values("1.0, 'a'", "3, 'b'")],
        ["update {t} set id = 2.5, v = 'c' where id = 1", _values("1, 'd'")],
        bare={"0": {"decimals": "precise"}, "1": {"decimals": "string"}},
    ),
    Scenario(
        "key written anew",
        "id numeric primary key, v text",
        [_values("1.0, 'a'", "3, 'b'")],
        [
            "update {t} set id = 1.00 where id = 1",
            _values("4.50, 'd'"),
            "update {t} set id = 4.5, v = 'e' where id = 4.50",
        ],
        bare={"1": {"decimals": "string"}},
        groups=("1",),
    ),
    Scenario(
        "key without case",
        "id citext primary key, v text",
        [_values("'Abc', 'a'")],
        ["update {t} set id = 'abc'"],
        needs="citext",
    ),
    Scenario(
        "truncated",
        "id int primary key, v text",
        [_values("1, 'a'")],
        ["truncate {t}", _values("2, 'b'")],
    ),
)
INCREMENTAL = Scenario(
    "incremental",
    "id int primary key, v text",
    [_values(*(f"{key}, 'v{key}'" for key in range(1, 6)))],
    [],
)
"""An incremental snapshot: asked for by a row of the signals' table, with changes before and after."""
