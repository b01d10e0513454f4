"""Column types as far as they are known before the first row, and the types of folds.

A source has a schema; so do functions over rows, and operators that fold. A ``map`` may have one;
behind one without, types are known from its first batch on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa

from abs_core.errors import SchemaError

Schema: TypeAlias = "pa.Schema | None"
"""None: not known yet."""
Schemas = Callable[[Sequence[Schema]], Schema]
"""What an operator emits, by what its inputs have. Raises ``SchemaError`` where it cannot take them."""


def unknown(inputs: Sequence[Schema]) -> Schema:
    return None


def same(inputs: Sequence[Schema]) -> Schema:
    """Of an operator that passes its rows on: the common schema of all inputs."""
    first = inputs[0]
    return first if first and all(other and first.equals(other) for other in inputs) else None


def declared(schema: Schema) -> Schemas:
    return lambda inputs: schema


def folding(
    key: Sequence[str], fold: str, column: str | None, to: pa.DataType, out: Sequence[str]
) -> Schemas:
    """Of a fold by key: the key's columns, and columns ``out`` of the type ``to``."""

    def folded(inputs: Sequence[Schema]) -> Schema:
        schema = inputs[0]
        if schema is None or not {*key, *([column] if column else [])} <= {*schema.names}:
            return None  # what is missing is named by the first batch
        if column is not None:
            check_fold(fold, column, key, schema.field(column).type, to)
        return pa.schema([*(schema.field(name) for name in key), *(pa.field(n, to) for n in out)])

    return folded


def check_fold(
    fold: str, column: str, by: Sequence[str], kind: pa.DataType, to: pa.DataType
) -> None:
    """Raise SchemaError for a type that could not be kept some day, whatever the present values.

    Fractions would be kept as integers, integers as floats, or text as numbers.
    """
    if fold == "count":
        return
    fractions = pa.types.is_floating(kind) or (pa.types.is_decimal(kind) and kind.scale > 0)
    if (fractions and pa.types.is_integer(to)) or _is_text(kind) != _is_text(to):
        remedy = (
            "`reduce` keeps fractions with codec=FLOAT64; else cast the column in a `map` before it "
            "(a window folds integers: a price in cents, for instance)."
        )
    elif pa.types.is_integer(kind) and pa.types.is_floating(to):
        # From 2**53 on not every integer is a float: a sum would fail there, perhaps after months.
        remedy = (
            "`reduce` keeps integers with codec=INT64, its default; or cast the column to float64 in "
            "a `map` before it, where sums may be rounded."
        )
    else:
        return
    raise SchemaError(
        f"No {fold} of {column} by {', '.join(by)} can be kept as {to}: the column is {kind}.",
        remedy=remedy,
    )


def _is_text(kind: pa.DataType) -> bool:
    return any(is_(kind) for is_ in (pa.types.is_string, pa.types.is_large_string))


def checked(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, if it has the declared schema of its ``map``."""
    if not batch.schema.equals(schema):
        raise SchemaError(
            f"A map was declared to return {_told(schema)}, and returned {_told(batch.schema)}.",
            remedy="correct its `schema`, or the function.",
        )
    return batch


def _told(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
