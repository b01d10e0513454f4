"""Debezium's change events become typed rows with an operation and a position.

The rows are what a sink with ``write=changes`` takes. An event's own schema says how its values are
sent; of events without one the user says it. What cannot be read exactly is an error, never another
value.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark users call it
from pyspark.sql import types as T  # noqa: N812

from abs_clients.arrow import MAX_DECIMAL_DIGITS
from abs_clients.avro.connect import CONNECT_SCHEMA
from abs_core.errors import OptionError, SchemaError
from abs_spark.cdc import settings as known
from abs_spark.cdc.assumed import lacking
from abs_spark.cdc.placeholders import sent_as_null
from abs_spark.cdc.reader import PLACE, EventReader, Rules
from abs_spark.cdc.settings import Settings
from abs_spark.cdc.target import TargetColumn
from abs_spark.cdc.values import READABLE
from abs_spark.cdc.wire import DATE, DECIMAL, ZONED_TIMESTAMP, Wire, row_wires
from abs_spark.schema import arrow_schema

log = logging.getLogger("abs_spark.debezium")

UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's default of ``unavailable.value.placeholder``."""

COMMITTED = "source_ts_ms"
"""The default of ``committedat``, an option of the sink."""

_DECIMALS = {known.PRECISE: known.PRECISE, "bytes": known.PRECISE, "string": "string"} | {
    known.DOUBLE: known.DOUBLE
}
_CHANGES = ("fail", "add", "ignore")


def debezium(
    df: DataFrame,
    schema: str | T.StructType | None = None,
    *,
    table: Mapping[str, str] | None = None,
    key: Collection[str] | None = None,
    value: str = "value",
    schemas: bool = False,
    decimals: str | None = None,
    scales: Mapping[str, int] | None = None,
    binary: str | None = None,
    times: str | None = None,
    milliseconds: Collection[str] | None = None,
    unavailable: str = UNAVAILABLE,
    names: tuple[str, str, str] = ("op", "lsn", "unchanged"),
    commit: str | None = None,
    committed: str | None = None,
    schemachange: str | None = None,
    ignore: Collection[str] = (),
    more: str | None = None,
    deadletter: bool | None = None,
) -> DataFrame:
    """The changed rows in ``df``, typed, with operation, position, and the columns left unchanged.

    Takes events of Debezium's connector for PostgreSQL: JSON with and without the schema around the
    payload, and what ``value.format=avro`` of ``abs-kafka`` reads. The event's schema says how a value
    is sent; what it does not say, or an event without one, is said by the arguments from ``decimals``
    to ``unavailable``. A value that the column's type does not hold exactly is an error.

    Tombstone records are dropped: the delete before them says the same. A changed key comes as a
    delete and a create. A truncate fails the query.

    Args:
        schema: the columns to read, as Spark's DDL or a StructType. Others of the source are not read.
            A STRING gets PostgreSQL's text of any value.
        table: options of ``abs-postgres`` (``url``, ``dbtable``, ...) instead of a schema: the target
            table's columns, of which those that Spark's types do not hold are texts.
        key: the key's columns; of a deleted row nothing else is read. Default: the table's primary
            key, or ``id``.
        value: the column with the event.
        schemas: all events have their schema (``value.converter.schemas.enable=true``); one without
            is an error. Without it, what an event without a schema does not tell must be said.
        decimals: ``decimal.handling.mode``: ``precise`` or ``string``. With ``double`` a numeric is
            refused, since it is rounded.
        scales: with ``precise``, the source's scale of each ``numeric(p, s)``.
        binary: ``binary.handling.mode``: ``bytes``, ``base64``, ``base64-url-safe`` or ``hex``.
        times: ``time.precision.mode``.
        milliseconds: with ``adaptive``, the source's columns of timestamp(0) to (3) and time(0) to (3).
        unavailable: ``unavailable.value.placeholder``.
        names: of the columns that are added: operation (``c``, ``u``, ``d`` or ``r``), position (the
            source's LSN) and unchanged columns (an array of names).
        commit: name of one more column, the first number of ``source.sequence``: the LSN of the last
            commit before, 0 in a snapshot.
        committed: name of one more column, ``source.ts_ms``: when the source committed the change, in
            milliseconds, for the sink's ``committedat``. Default: ``source_ts_ms`` with a ``table``
            that has no such column, else none; empty: none.
        schemachange: ``fail``: a column that only the source or only the table has is an error.
            ``ignore``: it is not read, or NULL. ``add``: as ``fail``; of Avro's schema the columns are
            read that the table lacks, for the sink's option of that name. Default: that of ``table``,
            or ``fail``; with a ``schema`` only a column that the events lack is an error.
        ignore: columns of the source that are not read, and columns of the table that are not filled.
        more: columns to read beside those of the table, as DDL.
        deadletter: a record that cannot be read becomes a row without operation, whose unchanged
            columns are the reason and the record: a sink with ``deadletter`` puts it aside. Default:
            whether ``table`` has ``deadletter``.

    Raises:
        OptionError: an argument is unknown, contradictory or missing.
        SchemaError: a column's type is none that Debezium's values are read as.
    """
    said = _settings(decimals, scales, binary, times, milliseconds, unavailable)
    where = dict(table or {})
    change = schemachange or _option(where, "schemachange") or ("fail" if table else None)
    if change not in (*_CHANGES, None):
        raise OptionError(
            f"debezium() does not know schemachange={change}.",
            remedy=f"take one of {', '.join(_CHANGES)}.",
        )
    targets, primary = _targets(schema, where, more)
    if committed is None and table and COMMITTED not in {target.name for target in targets}:
        committed = COMMITTED
    also = {"commit": commit, "committed": committed}
    also = {field: name for field, name in also.items() if name}
    names = (*names, *also.values())  # type: ignore[assignment]
    targets = [target for target in targets if target.name not in ignore]
    if table is not None:
        targets = [target for target in targets if target.name not in names]
    wires = _avro(df, value)
    if wires is not None and change == "add":
        targets += _added(wires, targets, {*ignore, *names})
    keys = tuple(key if key is not None else primary or ("id",))
    _check(targets, keys, said, names)
    if wires is None and not schemas:
        _check_said(targets, said)
    if table is not None:
        _warn_of_nulls(targets)
    out = _schema(targets, names)
    rules = Rules(
        targets=tuple(targets),
        key=keys,
        names=names,
        settings=said,
        schema=arrow_schema(out),
        value=value,
        ignored=frozenset(ignore),
        extra=change == "ignore" or (change is None and table is None),
        absent=change == "ignore",
        schemas=schemas,
        letters="deadletter" in {k.lower() for k in where} if deadletter is None else deadletter,
        wires=wires,
        also=tuple(also),
    )
    place = PLACE if set(PLACE) <= set(df.columns) else ()
    read = df.select(*(F.col(_quoted(name)) for name in dict.fromkeys((value, *place))))
    return read.mapInArrow(EventReader(rules), out)


def _settings(
    decimals: str | None,
    scales: Mapping[str, int] | None,
    binary: str | None,
    times: str | None,
    milliseconds: Collection[str] | None,
    unavailable: str,
) -> Settings:
    chosen: Sequence[tuple[str, str | None, Collection[str]]] = (
        ("decimals", decimals, _DECIMALS),
        ("binary", binary, known.BINARY),
        ("times", times, known.TIMES),
    )
    for name, text, there in chosen:
        if text is not None and text not in there:
            raise OptionError(
                f"debezium() does not know {name}={text}.",
                remedy=f"{name} is one of {', '.join(there)}.",
            )
    fine = None if milliseconds is None else frozenset(milliseconds)
    mode = None if decimals is None else _DECIMALS[decimals]
    return Settings(mode, dict(scales or {}), binary, times, fine, unavailable)


def _targets(
    schema: str | T.StructType | None, table: Mapping[str, str], more: str | None
) -> tuple[list[TargetColumn], tuple[str, ...]]:
    if (schema is None) is (not table):
        raise OptionError(
            "debezium() needs either a schema or a table.",
            remedy="give schema='id BIGINT, ...', or table={'url': ..., 'dbtable': ...}.",
        )
    targets, primary = [], ()  # type: list[TargetColumn], tuple[str, ...]
    if table:
        from abs_spark.postgres_types import columns_of_table

        targets, primary = columns_of_table(table)
    for text in (schema, more):
        if text is not None:
            rows = text if isinstance(text, T.StructType) else T._parse_datatype_string(str(text))
            assert isinstance(rows, T.StructType), "DDL of columns makes a struct"
            there = {target.name for target in targets}  # the sink may have added those of more
            targets += [_target(f.name, f.dataType) for f in rows if f.name not in there]
    return targets, primary


def _target(name: str, spark: T.DataType) -> TargetColumn:
    if isinstance(spark, T.ArrayType):
        return TargetColumn(name, spark, items=_target(name, spark.elementType))
    if not isinstance(spark, READABLE):
        raise SchemaError(
            f'Column "{name}": Debezium\'s values cannot be read as {spark.simpleString()}.',
            remedy="take a number, boolean, string, binary, date, timestamp, timestamp_ntz, interval "
            "day to second, or an array of these.",
        )
    return TargetColumn(name, spark)


def _check(
    targets: Sequence[TargetColumn], key: Collection[str], said: Settings, names: Collection[str]
) -> None:
    there = [target.name for target in targets]
    for columns, option in (
        (key, "key"),
        (said.milliseconds or (), "milliseconds"),
        (said.scales, "scales"),
    ):
        if missing := sorted(set(columns) - set(there)):
            raise OptionError(
                f"debezium(): {option} names {', '.join(missing)}, which the schema does not have.",
                remedy=f"it has {', '.join(there)}.",
            )
    if both := sorted(set(names) & set(there)):
        raise OptionError(
            f"debezium(): the rows have columns named {', '.join(both)} themselves.",
            remedy="name the added columns otherwise: names=('_op', '_lsn', '_unchanged').",
        )


def _check_said(targets: Sequence[TargetColumn], said: Settings) -> None:
    missing = list(lacking(targets, said))
    if missing:
        columns = "; ".join(column for column, _ in missing)
        raise OptionError(
            f"Debezium's events without a schema do not tell how these columns are sent: {columns}.",
            remedy="if the events have their schema (value.converter.schemas.enable=true), set "
            f"schemas=True; else say what is set in Debezium: {'; '.join(how for _, how in missing)}.",
        )


def _warn_of_nulls(targets: Sequence[TargetColumn]) -> None:
    if columns := sent_as_null(targets):
        log.warning(
            "Debezium sends NULL where an update left a large value of %s unchanged, and that NULL is "
            "written. If such values can be large (about 2 kB), set REPLICA IDENTITY FULL on the "
            "source's table, or Debezium's reselect post-processor.",
            ", ".join(columns),
        )


def _avro(df: DataFrame, value: str) -> Mapping[str, Wire] | None:
    """How the row's columns are sent by the schema of a decoded value; None: it is text or bytes."""
    field = next((column for column in df.schema if column.name == value), None)
    if field is None or not isinstance(field.dataType, T.StructType):
        return None
    try:
        return row_wires(json.loads(field.metadata[CONNECT_SCHEMA]))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise SchemaError(
            f"The column {value} is a struct that does not say what its fields mean to Debezium.",
            remedy="read it by the source abs-kafka with value.format=avro, from a topic that Debezium "
            "writes; or hand over JSON as text.",
        ) from None


def _added(
    wires: Mapping[str, Wire], targets: Sequence[TargetColumn], left_out: Collection[str]
) -> list[TargetColumn]:
    """The columns of the source that the table lacks, for the sink to add."""
    there = {target.name for target in targets} | set(left_out)
    return [_target(name, _added_type(sent)) for name, sent in wires.items() if name not in there]


def _added_type(sent: Wire) -> T.DataType:
    """The type of a new column, which holds all of its values; else text."""
    if sent.items is not None:
        return T.ArrayType(_added_type(sent.items))
    if sent.name == DECIMAL:
        digits, scale = sent.number("connect.decimal.precision"), sent.number("scale")
        if digits is not None and scale is not None and scale <= digits <= MAX_DECIMAL_DIGITS:
            return T.DecimalType(digits, scale)
    return _ADDED.get(sent.name or sent.type, T.StringType())


_ADDED: Mapping[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "int16": T.ShortType(),
    "int32": T.IntegerType(),
    "int64": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "bytes": T.BinaryType(),
    DATE: T.DateType(),
    ZONED_TIMESTAMP: T.TimestampType(),
    "io.debezium.time.Timestamp": T.TimestampNTZType(),
    "io.debezium.time.MicroTimestamp": T.TimestampNTZType(),
}


def _schema(targets: Sequence[TargetColumn], names: Sequence[str]) -> T.StructType:
    kinds = (T.StringType(), T.LongType(), T.ArrayType(T.StringType()), T.LongType(), T.LongType())
    added = [T.StructField(name, kind) for name, kind in zip(names, kinds, strict=False)]
    return T.StructType([*(T.StructField(t.name, t.spark) for t in targets), *added])


def _option(options: Mapping[str, Any], name: str) -> str | None:
    return next((str(text) for key, text in options.items() if key.lower() == name), None)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
