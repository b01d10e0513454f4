"""The rows and columns of each sink, as Spark evaluates them: one job for all without a transform.

Spark passes each row to Python once: a column for each sink holds its row as a struct, which is NULL
if its condition is not true.

To check that an expression is computed from one row alone, Spark has to analyse it, which a small
epoch would feel. So the results for an input of one schema are kept for the query's run: the parsed
expressions, their columns' names and the sinks' schemas. A session can change under them (a temporary
function, a variable, a setting). So each batch's plan is compared as a whole, and everything is found
again if it differs. Under Connect, where this comparison takes two requests for each expression, the
results are kept for the whole run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import StructType

from abs_core.errors import OptionError
from abs_spark.foreach.spec import EpochSink, letters_of, letters_schema
from abs_spark.schema import input_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FILTER, _PROJECT = "Filter", "Project"
_ANALYZED = re.compile(r"^== Analyzed Logical Plan ==\n.*?\n(.*?)\n\n== ", re.DOTALL | re.MULTILINE)
_STAR = re.compile(r"((?:.*\.)?)\*(?:\s+except\s*\(.*\))?", re.DOTALL | re.IGNORECASE)
_NODE = re.compile(r"^(?:[: ]*[:+]- )(\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class View:
    """A sink's part of a batch.

    Args:
        sink: its index among the epoch's sinks.
        schema: of its rows.
        column: the column with its rows as structs; None if the batch itself has its rows.
        filtered: whether structs may be NULL.
        letters: the sink gets dead letters of others, and no rows of the batch.
    """

    sink: int
    schema: pa.Schema
    column: str | None = None
    filtered: bool = False
    letters: bool = False

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The sink's rows of a batch."""
        if self.letters:
            return batch.slice(0, 0)
        if self.column is None:
            return batch
        rows = batch.column(self.column)
        if self.filtered:
            rows = rows.filter(rows.is_valid())
        return pa.RecordBatch.from_struct_array(rows)


@dataclass(frozen=True, slots=True)
class Pass:
    """One Spark job: the columns that it passes to Python, and the sinks' views of them."""

    rows: DataFrame
    views: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class _Shape:
    """How the shared pass is made from an input.

    Args:
        where: the condition of its rows; None if each sink has its own, or none.
        columns: that it passes on; None: the input's own.
        output: its schema, as text.
    """

    views: tuple[View, ...]
    where: Column | None
    columns: tuple[Column, ...] | None
    output: str

    def of(self, df: DataFrame) -> DataFrame:
        rows = df if self.where is None else df.filter(self.where)
        return rows if self.columns is None else rows.select(*self.columns)

    def still_fits(self, df: DataFrame, rows: DataFrame) -> bool:
        """Whether Spark still derives the same plan from the input."""
        if _classic(rows) is None:
            return True
        nodes = [_PROJECT] * (self.columns is not None) + [_FILTER] * (self.where is not None)
        return not nodes or (_text(rows) == self.output and _stands_on(df, rows, nodes))


class Passes:
    """The Spark jobs of a run's epochs: one for all sinks without a transform, one for each other."""

    def __init__(self, sinks: Sequence[EpochSink]) -> None:
        self._sinks = tuple(sinks)
        letters = set(letters_of(sinks).values())
        self._letters = tuple(
            View(place, letters_schema(sinks[place]), letters=True) for place in sorted(letters)
        )
        self._shared = [
            place
            for place, sink in enumerate(sinks)
            if sink.transform is None and place not in letters
        ]
        self._found: dict[str, _Shape] = {}

    def of(self, df: DataFrame) -> list[Pass]:
        """The jobs for a micro-batch.

        Raises:
            OptionError: an expression is not computed from one row alone.
            SchemaError: a column has no counterpart in Arrow.
        """
        made = [self._together(df)] if self._shared else []
        for place, sink in enumerate(self._sinks):
            if sink.transform is not None:
                rows = sink.transform(df)
                made.append(Pass(rows, (View(place, _arrow(_text(rows))),)))
        return made

    def _together(self, df: DataFrame) -> Pass:
        text = _text(df)
        shape = self._found.get(text)
        if shape is not None:
            rows = shape.of(df)
            if shape.still_fits(df, rows):
                return Pass(rows, shape.views + self._letters)
        shape = _shape(df, [(place, self._sinks[place]) for place in self._shared])
        self._found = {text: shape}
        return Pass(shape.of(df), shape.views + self._letters)


def _shape(df: DataFrame, sinks: Sequence[tuple[int, EpochSink]]) -> _Shape:
    schemas = [_text(_rows_of(df, sink)) for _, sink in sinks]
    if len(sinks) == 1 or not any(sink.select or sink.where for _, sink in sinks):
        views = [View(place, _arrow(schemas[0])) for place, _ in sinks]
        first = sinks[0][1]
        where = None if first.where is None else F.expr(first.where)
        columns = tuple(_columns(df, first)) if first.select else None
        return _Shape(tuple(views), where, columns, schemas[0])
    views, held = [], []
    for (place, sink), schema in zip(sinks, schemas, strict=True):
        name = f"sink{place}"
        struct = F.struct(*_columns(df, sink))
        chosen = struct if sink.where is None else F.when(F.expr(sink.where), struct)
        held.append(chosen.alias(name))
        views.append(View(place, _arrow(schema), name, filtered=sink.where is not None))
    return _Shape(tuple(views), None, tuple(held), _text(df.select(*held)))


def _rows_of(df: DataFrame, sink: EpochSink) -> DataFrame:
    rows = df
    if sink.where is not None:
        rows = rows.filter(sink.where)
        _check(df, rows, _FILTER, sink, sink.where)
    if sink.select:
        before = rows
        rows = rows.selectExpr(*sink.select)
        _check(before, rows, _PROJECT, sink, ", ".join(sink.select))
    return rows


def _columns(df: DataFrame, sink: EpochSink) -> list[Column]:
    """The columns, each with the name that it has outside a struct."""
    made: list[Column] = []
    for text in sink.select or ("*",):
        names = df.selectExpr(text).columns
        star = _STAR.fullmatch(text.strip())
        if star is None:
            [name] = names
            made.append(F.expr(text).alias(name))
        else:
            quoted = [name.replace("`", "``") for name in names]
            made += [F.expr(f"{star[1]}`{name}`") for name in quoted]
    return made


def _check(before: DataFrame, after: DataFrame, node: str, sink: EpochSink, text: str) -> None:
    """Refuse expressions that Spark does not evaluate row by row: generators, aggregates, windows."""
    if not _stands_on(before, after, [node]):
        raise OptionError(
            f"The sink {sink.name or sink.format}: {text!r} is not computed from one row alone.",
            remedy="put generators (explode), aggregates and windows into a transform=, which "
            "runs as a Spark job of its own under the same decision.",
        )


def _stands_on(before: DataFrame, after: DataFrame, nodes: Sequence[str]) -> bool:
    """Whether one plan adds only these nodes to the other."""
    plan = _classic(after)
    if plan is None:
        return _nodes(after) == [*nodes, *_nodes(before)]
    for node in nodes:
        if plan.nodeName() != node:
            return False
        plan = plan.child()
    return bool(plan.sameResult(_classic(before)))


def _classic(df: DataFrame) -> Any:
    """The analysed plan; None under Connect, where the server has it."""
    frame: Any = getattr(df, "_jdf", None)
    return None if frame is None else frame.queryExecution().analyzed()


def _nodes(df: DataFrame) -> list[str]:
    """The names of the plan's nodes under Connect, which gives a plan as text only.

    Nodes of a subquery of the topmost node are omitted. A text that looks like a node (a literal of
    several lines) adds one too many, so that something is refused, and nothing is let through.
    """
    frame: Any = df
    match = _ANALYZED.search(frame._explain_string(extended=True))
    assert match is not None, "Spark explains what it has analyzed"
    first, *more = match[1].split("\n")
    below = "\n".join(line for line in more if not line.startswith(":"))
    return [first.partition(" ")[0], *_NODE.findall(below)]


def _text(df: DataFrame) -> str:
    """The schema, as Spark writes it."""
    frame: Any = getattr(df, "_jdf", None)
    return df.schema.json() if frame is None else str(frame.schema().json())


@lru_cache(maxsize=64)
def _arrow(schema: str) -> pa.Schema:
    return input_schema(StructType.fromJson(json.loads(schema)))
