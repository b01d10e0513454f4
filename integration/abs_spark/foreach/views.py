"""Which rows and columns each sink gets, as Spark evaluates it: one job for all without a transform.

Spark hands each row over to Python once: a column for each sink holds its row as a struct, which is
NULL where its condition is not true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from abs_core.errors import OptionError
from abs_spark.foreach.spec import EpochSink
from abs_spark.schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class View:
    """A sink's part of a batch.

    Args:
        sink: its place among the epoch's sinks.
        schema: of its rows.
        column: the column that holds them as structs; None where the batch is its rows.
        filtered: whether structs may be NULL.
    """

    sink: int
    schema: pa.Schema
    column: str | None = None
    filtered: bool = False

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Its rows of a batch."""
        if self.column is None:
            return batch
        rows = batch.column(self.column)
        if self.filtered:
            rows = rows.filter(rows.is_valid())
        return pa.RecordBatch.from_struct_array(rows)


@dataclass(frozen=True, slots=True)
class Pass:
    """One Spark job: what it hands over, and who gets what of it."""

    rows: DataFrame
    views: tuple[View, ...]


def passes(df: DataFrame, sinks: Sequence[EpochSink]) -> list[Pass]:
    """The jobs that an epoch takes: one for all sinks without a transform, one for each other.

    Raises:
        OptionError: an expression is not made of one row alone.
        SchemaError: a column has no counterpart in Arrow.
    """
    shared = [place for place, sink in enumerate(sinks) if sink.transform is None]
    made = [_shared(df, sinks, shared)] if shared else []
    for place, sink in enumerate(sinks):
        if sink.transform is not None:
            rows = sink.transform(df)
            made.append(Pass(rows, (View(place, arrow_schema(rows.schema)),)))
    return made


def _shared(df: DataFrame, sinks: Sequence[EpochSink], places: Sequence[int]) -> Pass:
    parts = [_rows_of(df, sinks[place]) for place in places]
    if len(places) == 1 or not any(sinks[p].select or sinks[p].where for p in places):
        rows = parts[0]
        return Pass(rows, tuple(View(place, arrow_schema(rows.schema)) for place in places))
    columns: list[Column] = []
    views: list[View] = []
    for place, part in zip(places, parts, strict=True):
        sink, name = sinks[place], f"sink{place}"
        struct = F.struct(*_columns(df, sink))
        chosen = struct if sink.where is None else F.when(F.expr(sink.where), struct)
        columns.append(chosen.alias(name))
        schema = arrow_schema(part.schema)
        views.append(View(place, schema, name, filtered=sink.where is not None))
    return Pass(df.select(*columns), tuple(views))


def _rows_of(df: DataFrame, sink: EpochSink) -> DataFrame:
    rows = df
    if sink.where is not None:
        rows = rows.filter(sink.where)
        _check(df, rows, "Filter", sink, sink.where)
    if sink.select:
        before = rows
        rows = rows.selectExpr(*sink.select)
        _check(before, rows, "Project", sink, ", ".join(sink.select))
    return rows


def _columns(df: DataFrame, sink: EpochSink) -> list[Column]:
    made: list[Column] = []
    for text in sink.select or ("*",):
        if text.strip() == "*":
            made += [df[f"`{name.replace('`', '``')}`"] for name in df.columns]
        else:
            [name] = df.selectExpr(text).columns
            made.append(F.expr(text).alias(name))
    return made


def _check(before: DataFrame, after: DataFrame, node: str, sink: EpochSink, text: str) -> None:
    """Refuse what Spark does not evaluate row by row: generators, aggregates, windows, subqueries."""
    plan: Any = getattr(after, "_jdf", None)
    if plan is None:  # Connect keeps the plan on its server; Spark refuses most of it there
        return
    plan = plan.queryExecution().analyzed()
    child = before._jdf.queryExecution().analyzed()
    if plan.nodeName() != node or not plan.child().sameResult(child):
        raise OptionError(
            f"The sink {sink.name or sink.format}: {text!r} is not made of one row alone.",
            remedy="generators (explode), aggregates and windows go into a transform=, which gets a "
            "Spark job of its own under the same decision.",
        )
