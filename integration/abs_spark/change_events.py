"""Debezium's change events, as JSON, become typed rows with an operation and a position.

The rows are what a sink with ``write=changes`` takes. Spark's own functions do all of it, in the JVM.
What cannot be read is an error of the query, never a NULL.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark users call it
from pyspark.sql import types as T  # noqa: N812

from abs_core.errors import OptionError, SchemaError

UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's default of ``unavailable.value.placeholder``."""

_SOURCE = "STRUCT<lsn: BIGINT, sequence: STRING>"
_DECIMALS = ("bytes", "string")
_BINARY = {"base64": "unbase64", "hex": "unhex"}


def debezium(
    df: DataFrame,
    schema: str | T.StructType | None = None,
    *,
    key: Collection[str] = ("id",),
    table: Mapping[str, str] | None = None,
    value: str = "value",
    decimals: str = "bytes",
    binary: str = "base64",
    milliseconds: Collection[str] = (),
    unavailable: str = UNAVAILABLE,
    names: tuple[str, str, str] = ("op", "lsn", "unchanged"),
    commit: str | None = None,
) -> DataFrame:
    """The changed rows in ``df``, typed, with operation, position, and the columns left unchanged.

    Takes records with and without Debezium's schema around the payload. Tombstone records are dropped:
    the delete before them says the same. A changed key comes as a delete and a create. A truncate, and
    anything else that is no row's change, fails the query.

    Args:
        schema: of the source's rows, as Spark's DDL or a StructType. A column that is left out is not
            read. Text stays text: of uuid, json, enums, ``interval.handling.mode=string``.
        key: the key's columns. Of a deleted row nothing else is read.
        table: options of ``abs-postgres`` (``url``, ``dbtable``, ...) instead of a schema: the target
            table's types are taken.
        value: the column with the event, a string or binary.
        decimals: ``decimal.handling.mode``: ``bytes`` (precise), or ``string``.
        binary: ``binary.handling.mode``: ``base64`` (also of bytes), or ``hex``.
        milliseconds: timestamp columns that come in milliseconds: of a source's timestamp(0) to (3)
            under ``time.precision.mode=adaptive``. All others come in microseconds.
        unavailable: ``unavailable.value.placeholder``.
        names: of the columns that are added: operation (``c``, ``u``, ``d`` or ``r``), position (the
            source's LSN) and unchanged columns (an array of names).
        commit: name of one more column, the first number of ``source.sequence``: the LSN of the last
            commit before, 0 in a snapshot. As text the sequence would be ordered wrong.

    Raises:
        OptionError: an argument is unknown or contradictory.
        SchemaError: a column's type is none that Debezium sends.
    """
    if (schema is None) is (table is None):
        raise OptionError(
            "debezium() needs either a schema or a table.",
            remedy="give schema='id BIGINT, ...', or table={'url': ..., 'dbtable': ...}.",
        )
    if decimals not in _DECIMALS or binary not in _BINARY:
        raise OptionError(
            f"debezium() does not know decimals={decimals}, binary={binary}.",
            remedy=f"decimals is one of {', '.join(_DECIMALS)}, binary one of {', '.join(_BINARY)}. "
            "With decimal.handling.mode=double numbers are rounded: choose another mode in Debezium.",
        )
    if table is not None:
        from abs_spark.postgres_types import columns_of_table

        schema, finer = columns_of_table(table)
        milliseconds = {*milliseconds, *finer}
    rows = schema if isinstance(schema, T.StructType) else T._parse_datatype_string(str(schema))
    assert isinstance(rows, T.StructType), "DDL of columns makes a struct"
    if table is not None:
        rows = T.StructType([field for field in rows if field.name not in names])
    added = (*names, *([commit] if commit else []))
    _check(rows, key, milliseconds, added)
    columns = [_Column(field, decimals, binary, unavailable, milliseconds) for field in rows]
    return _read(df, value, columns, set(key), added)


def _check(
    rows: T.StructType, key: Collection[str], milliseconds: Collection[str], names: Collection[str]
) -> None:
    for given, what in ((key, "key"), (milliseconds, "milliseconds")):
        if lacking := sorted(set(given) - set(rows.names)):
            raise OptionError(
                f"debezium(): {what} names {', '.join(lacking)}, which the schema does not have.",
                remedy=f"it has {', '.join(rows.names)}.",
            )
    if both := sorted(set(names) & set(rows.names)):
        raise OptionError(
            f"debezium(): the rows have columns named {', '.join(both)} themselves.",
            remedy="name the added columns otherwise: names=('_op', '_lsn', '_unchanged').",
        )


def _read(
    df: DataFrame, value: str, columns: list[_Column], key: set[str], names: tuple[str, ...]
) -> DataFrame:
    row = ", ".join(f"{_quoted(column.name)}: {column.wire}" for column in columns)
    image = f"STRUCT<{row}>"
    fields = (("op", "STRING"), ("before", image), ("after", image), ("source", _SOURCE))
    event = ", ".join(f"{name}: {kind}" for name, kind in fields)
    # With Debezium's schema around it, the event is the payload.
    whole = f"payload STRUCT<{event}>, " + ", ".join(f"{name} {kind}" for name, kind in fields)
    parsed = df.where(f"{_quoted(value)} is not null").select(
        F.from_json(F.col(_quoted(value)).cast("string"), whole, {"mode": "FAILFAST"}).alias("e")
    )
    read = parsed.selectExpr(
        "coalesce(e.payload.op, e.op) as o",
        "coalesce(e.payload.before, e.before) as b",
        "coalesce(e.payload.after, e.after) as a",
        "coalesce(e.payload.source, e.source) as s",
    ).selectExpr(
        "case when o in ('c', 'u', 'd', 'r') then o else raise_error(concat("
        "'A record of Debezium is no change of a row: its op is ', coalesce(o, 'NULL'), "
        "'. Truncates (t) and messages (m) cannot be applied: set skipped.operations=t in Debezium, or "
        "filter such records.')) end as o",
        "case when o = 'd' then b else a end as r",
        "s.lsn as p",
        "coalesce(cast(get(from_json(s.sequence, 'array<string>'), 0) as bigint), 0) as q",
    )
    made = [
        f"{column.read(alone=column.name in key)} as {_quoted(column.name)}" for column in columns
    ]
    gaps = ", ".join(
        f"case when {column.left_out} then {_text(column.name)} end"
        for column in columns
        if column.name not in key
    )
    listed = f"array_compact(array({gaps}))" if gaps else "cast(array() as array<string>)"
    operation, position, unchanged, *commit = map(_quoted, names)
    return read.selectExpr(
        *made,
        f"o as {operation}",
        f"p as {position}",
        f"case when o = 'd' then cast(array() as array<string>) else {listed} end as {unchanged}",
        *(f"q as {name}" for name in commit),
    )


@dataclass(frozen=True)
class _Column:
    """One column, as it is sent and as it is read."""

    field: T.StructField
    decimals: str
    binary: str
    unavailable: str
    milliseconds: Collection[str]

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def wire(self) -> str:
        """Spark's type of what is sent."""
        return self._wire(self.field.dataType)

    @property
    def left_out(self) -> str:
        """Whether the placeholder is there instead of a value."""
        kind, sent = self.field.dataType, f"r.{_quoted(self.name)}"
        marks = [self.unavailable]
        if isinstance(kind, T.ArrayType):
            if self._wire(kind.elementType) != "STRING":
                return "false"
            return f"coalesce({sent} = array({_text(self.unavailable)}), false)"
        if self.wire != "STRING":
            return "false"
        encoded = f"base64(cast({_text(self.unavailable)} as binary))"
        if isinstance(kind, T.BinaryType) and self.binary == "hex":
            encoded = f"lower(hex(cast({_text(self.unavailable)} as binary)))"
        listed = ", ".join([*map(_text, marks), encoded])
        return f"coalesce({sent} in ({listed}), false)"

    def read(self, *, alone: bool) -> str:
        """The value; NULL where none is sent, and of a deleted row, unless it is ``alone`` there."""
        sent = f"r.{_quoted(self.name)}"
        sure = self._sure(self._value(sent, self.field.dataType), self.field.dataType)
        nothing = f"{sent} is null or {self.left_out}" + ("" if alone else " or o = 'd'")
        none = f"cast(null as {self.field.dataType.simpleString()})"
        return f"case when {nothing} then {none} else {sure} end"

    def _sure(self, made: str, kind: T.DataType) -> str:
        """The value, or an error of the query where it became NULL."""
        what = (
            f"Column {self.name} of a record of Debezium cannot be read as {kind.simpleString()}."
        )
        return f"coalesce({made}, raise_error({_text(what)}))"

    def _wire(self, kind: T.DataType) -> str:
        if isinstance(kind, T.ArrayType):
            return f"ARRAY<{self._wire(kind.elementType)}>"
        if isinstance(kind, (T.StringType, T.BinaryType, T.DecimalType, T.TimestampType)):
            return "STRING"
        if isinstance(kind, T.DateType):
            return "INT"
        if isinstance(kind, (T.TimestampNTZType, T.DayTimeIntervalType)):
            return "BIGINT"
        if isinstance(kind, (T.BooleanType, T.NumericType)):
            return str(kind.simpleString()).upper()
        raise SchemaError(
            f'Column "{self.name}": Debezium\'s values cannot be read as {kind.simpleString()}.',
            remedy="take a number, boolean, string, binary, date, timestamp, timestamp_ntz, interval "
            "day to second, or an array of these.",
        )

    def _value(self, sent: str, kind: T.DataType) -> str:
        if isinstance(kind, T.ArrayType):
            inner = self._value("x", kind.elementType)
            if inner == "x":
                return sent
            sure = self._sure(inner, kind.elementType)
            return f"transform({sent}, x -> case when x is not null then {sure} end)"
        if isinstance(kind, T.BinaryType):
            return f"{_BINARY[self.binary]}({sent})"
        if isinstance(kind, T.DecimalType):
            digits = sent if self.decimals == "string" else _digits(sent, kind.scale)
            return f"cast({digits} as {kind.simpleString()})"
        if isinstance(kind, T.TimestampType):
            return f"cast({sent} as timestamp)"
        if isinstance(kind, T.DateType):
            return f"date_from_unix_date({sent})"
        span = _span(sent, 1000 if self.name in self.milliseconds else 1)
        if isinstance(kind, T.TimestampNTZType):
            return f"timestamp_ntz'1970-01-01 00:00:00' + {span}"
        if isinstance(kind, T.DayTimeIntervalType):
            return span
        return sent


def _span(sent: str, micros: int) -> str:
    """So many microseconds, exactly: a timestamp function would go through the session's zone."""
    count = f"cast({sent} as decimal(20,0)) * {micros}"
    return f"make_dt_interval(0, 0, 0, cast(({count}) / 1000000 as decimal(18,6)))"


def _digits(sent: str, scale: int) -> str:
    """The decimal text of bytes: a whole number in two's complement, to be divided by 10^scale.

    A numeric without a scale of its own is an object with ``scale`` and ``value``.
    """
    value = f"coalesce(get_json_object({sent}, '$.value'), {sent})"
    scaled = f"coalesce(cast(get_json_object({sent}, '$.scale') as int), {scale})"
    code = f"hex(unbase64({value}))"
    padded = f"lpad({code}, 32, case when substr({code}, 1, 1) >= '8' then 'F' else '0' end)"
    high = f"cast(conv(substr({padded}, 1, 16), 16, -10) as decimal(20,0))"
    low = f"cast(conv(substr({padded}, 17, 16), 16, 10) as decimal(20,0))"
    base = "cast('18446744073709551616' as decimal(20,0))"
    # The magnitude, since 38 digits leave no room beyond the value itself.
    negative = f"substr({code}, 1, 1) >= '8'"
    whole = (
        f"cast(case when {negative} then (-{high} - 1) * {base} + ({base} - {low}) "
        f"else {high} * {base} + {low} end as decimal(38,0))"
    )
    text = f"lpad(cast({whole} as string), greatest(39, {scaled} + 1), '0')"
    return (
        f"concat(case when {negative} then '-' else '' end, "
        f"substr({text}, 1, length({text}) - {scaled}), '.', right({text}, {scaled}))"
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
