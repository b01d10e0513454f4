"""Folds that the types of their columns do not allow are refused before the job has read a row."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from abs_core.errors import SchemaError, UnavailableError
from abs_embedded import Graph, Stream
from abs_embedded.state.codecs import FLOAT64
from abs_embedded.tables import TableSource
from abs_testing.harness import SCHEMA
from tests.embedded.bench import Bench

PRICES = pa.table({"id": [1, 1], "at": [3, 4], "price": [1.0, 2.0]})
"""Whole numbers of a type that has fractions: the first of these may come after days."""


class Unread(TableSource):
    """A source that nobody may read."""

    def splits(self, start: Any, end: Any) -> Any:
        raise AssertionError("the job has begun to read")


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def as_output(batch: pa.RecordBatch) -> pa.RecordBatch:
    sums = batch["sum"].cast(pa.int64())
    return pa.record_batch([sums, sums.cast(pa.string())], schema=SCHEMA)


WAYS: dict[str, Callable[[Stream], Stream]] = {
    "directly": lambda s: s,
    "filter": lambda s: s.filter("f", lambda b: pa.array([True] * len(b))),
    "union": lambda s: s.union("u", s.graph.source("more", Unread([PRICES]))),
    "declared map": lambda s: s.map("m", same, schema=PRICES.schema),
    "rows": lambda s: s.flat_map_rows("r", lambda row: [row], PRICES.schema),
    "process": lambda s: s.key_by("id").process(
        "p", lambda row, at: [row], PRICES.schema, lambda c: {}
    ),
    "reduce": lambda s: s.key_by("id").reduce("r", "max", "price", out="price", codec=FLOAT64),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_sum_of_fractions_in_integers_is_refused_before_a_row_is_read(
    bench: Bench, way: str
) -> None:
    graph = Graph("sums")
    stream = WAYS[way](graph.source("rows", Unread([PRICES])))
    stream.key_by("id").reduce("total", "sum", "price").sink("out", bench.sink)
    with pytest.raises(SchemaError, match=r"Operator total: No sum of price.*double.*FLOAT64"):
        bench.job(graph).run()


@pytest.mark.parametrize("fold", ["sum", "min", "max"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.uint64()], ids=str)
def test_integers_in_floats_are_refused_before_a_row_is_read(
    bench: Bench, fold: str, kind: pa.DataType
) -> None:
    """Beyond 2**53 they fail, which may take months."""
    graph, table = Graph("sums"), pa.table({"id": [1], "n": pa.array([1], kind)})
    stream = graph.source("rows", Unread([table])).key_by("id")
    stream.reduce("total", fold, "n", codec=FLOAT64).sink("out", bench.sink)
    with pytest.raises(SchemaError, match=f"Operator total: No {fold} of n .*INT64"):
        bench.job(graph).run()


@pytest.mark.parametrize("fold", ["sum", "min", "max"])
@pytest.mark.parametrize(
    "values", [pa.array([1.0]), pa.array([Decimal("1.00")]), pa.array(["9"])], ids=str
)
def test_a_window_of_what_is_no_integer_is_refused_before_a_row_is_read(
    bench: Bench, fold: str, values: pa.Array
) -> None:
    graph, table = Graph("windows"), pa.table({"id": [1], "at": [3], "price": values})
    stream = graph.source("rows", Unread([table])).key_by("id")
    stream.window("total", "at", 10, fold, "price").sink("out", bench.sink)
    with pytest.raises(SchemaError, match=f"Operator total: No {fold} of price"):
        bench.job(graph).run()


@pytest.mark.parametrize("kind", [pa.int32(), pa.decimal128(19, 0), pa.uint8()], ids=str)
def test_a_sum_of_integers_of_any_width_runs(bench: Bench, kind: pa.DataType) -> None:
    graph, table = Graph("sums"), pa.table({"id": [1, 2], "n": pa.array([1, 1]).cast(kind)})
    stream = graph.source("rows", TableSource([table])).key_by("id")
    stream.reduce("total", "sum", "n").map("text", as_output, schema=SCHEMA).sink("out", bench.sink)
    bench.job(graph).run()
    assert bench.rows() == [(1, "1"), (1, "1")]


def test_behind_a_map_that_does_not_say_what_it_returns_the_first_batch_settles_it(
    bench: Bench,
) -> None:
    graph = Graph("sums")
    stream = graph.source("rows", TableSource([PRICES])).map("m", same).key_by("id")
    stream.reduce("total", "sum", "price").sink("out", bench.sink)
    with pytest.raises(SchemaError, match=r"total/0: No sum of price"):
        bench.job(graph, restarts=0).run()


def test_a_map_that_returns_something_else_than_it_says_is_an_error(bench: Bench) -> None:
    graph = Graph("sums")
    stream = graph.source("rows", TableSource([PRICES])).map("m", same, schema=SCHEMA)
    stream.sink("out", bench.sink)
    with pytest.raises(SchemaError, match=r"m/0: A map was declared to return id int64, value"):
        bench.job(graph, restarts=0).run()


def test_a_source_that_cannot_say_its_types_yet_stops_no_start(bench: Bench) -> None:
    class Away(TableSource):
        @property
        def schema(self) -> pa.Schema:
            raise UnavailableError("There is no file yet.")

    graph = Graph("sums")
    table = pa.table({"id": [1], "sum": [1]})
    stream = graph.source("rows", Away([table])).key_by("id").reduce("total", "sum", "sum")
    stream.map("text", as_output).sink("out", bench.sink)
    bench.job(graph).run()
    assert bench.rows() == [(1, "1")]
