"""Spark's batches are taken as the sink's schema has them."""

from __future__ import annotations

import pyarrow as pa

from abs_spark.schema import to_target_schema


def test_lists_of_nulls_are_taken_whole_beside_a_column_that_is_cast() -> None:
    """Arrow 26 cuts them in a cast, also in one to the same type."""
    none = pa.array([[None] * 3, [], [None] * 2], pa.list_(pa.null()))
    batch = pa.record_batch([none, pa.array(["a"] * 3, pa.large_string())], ["none", "text"])
    schema = pa.schema([("none", none.type), ("text", pa.string())])
    found = to_target_schema(batch, schema)
    found.validate(full=True)
    assert found.schema == schema
    assert found.to_pylist() == batch.to_pylist()
