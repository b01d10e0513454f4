"""Every sink writes the same for the same values, however Arrow lays them out in memory."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abs_core.errors import AbsError, RowError, SchemaError
from abs_sinks.kafka.records import header_lists, records_of
from abs_sinks.kafka.records import plan_columns as plan_records
from abs_sinks.postgres.columns.plan import plan_columns
from abs_sinks.postgres.columns.table import CatalogTable
from abs_sinks.postgres.columns.types import Column, PgType
from abs_sinks.rowhash import row_digest
from abs_sinks.s3 import S3Options
from abs_sinks.s3.formats import check_schema, encoder
from tests import sample
from tests.sinks.layouts import layouts
from tests.sinks.test_row_digest import KINDS

Way = Callable[[pa.Array], Any]

REFUSED = (SchemaError, pa.ArrowNotImplementedError)
"""Of a layout that a way does not take; the task's error, before anything is visible."""

REFUSED_INSIDE = (*REFUSED, RowError)
"""Of a layout inside another one: Arrow decodes no runs there, and says so at the first value."""

HEADER = {"key": st.text("ab"), "value": st.none() | st.binary(max_size=3)}
ALL_KINDS = {
    **KINDS,
    "headers": (
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        st.lists(st.fixed_dictionaries(HEADER), max_size=3),
    ),
}

_INT8, _JSONB = PgType(20, "int8", "bigint"), PgType(3802, "jsonb", "jsonb")
_NUMERIC = PgType(1700, "numeric", "numeric")
_INET = PgType(869, "inet", "inet")  # has a text form only: the whole COPY is text then
DECLARED = {
    "long": [_INT8, _NUMERIC],
    "byte": [_INT8],
    "yes": [PgType(16, "bool", "boolean")],
    "double": [PgType(701, "float8", "double precision")],
    "float": [PgType(700, "float4", "real")],
    "price": [_NUMERIC],
    "word": [PgType(25, "text", "text", receive="textrecv"), _INET],
    "raw": [PgType(17, "bytea", "bytea")],
    "at": [PgType(1184, "timestamptz", "timestamptz")],
    "day": [PgType(1082, "date", "date")],
    "list": [PgType(1, "_int8", "bigint[]", element=_INT8), _JSONB],
    "map": [_JSONB],
    "struct": [_JSONB],
}


def in_s3(fileformat: str, array: pa.Array) -> Any:
    """The file's bytes; its values, where the format keeps Arrow's layout."""
    named = {"path": "s3://bucket/rows", "fileformat": fileformat, "compression": "none"}
    options = S3Options.parse(named)
    table = pa.table({"c": array})
    check_schema(table.schema, options)
    out = io.BytesIO()
    file = encoder(out, table.schema, options)
    file.write(table)
    file.close()
    if fileformat == "parquet":
        return str(pq.read_table(pa.BufferReader(out.getvalue()))["c"].to_pylist())
    if fileformat == "arrow":
        return str(pa.ipc.open_file(out.getvalue()).read_all()["c"].to_pylist())
    return out.getvalue()


def in_postgres(declared: PgType, as_text: bool, array: pa.Array) -> bytes:
    more = {"x": pa.array(["::1"] * len(array), pa.string())} if as_text else {}
    batch = pa.record_batch({"c": array, **more})
    columns = Column("c", declared), *(Column(name, _INET) for name in more)
    plan = plan_columns(batch.schema, CatalogTable("public", "t", 1, columns))
    assert plan.format == ("text" if _INET in (declared, columns[-1].type) else "binary")
    made = plan.encoder()
    return made.header() + made.encode(batch) + made.finish()


def in_kafka(array: pa.Array) -> Any:
    column = "headers" if pa.types.is_nested(array.type) else "value"
    batch = pa.record_batch({"value": pa.array([b""] * len(array), pa.binary()), column: array})
    records = records_of(batch, plan_records(batch.schema, "topic"))
    return records.values.to_pylist(), records.headers and header_lists(records.headers)


def in_digest(array: pa.Array) -> Any:
    return row_digest(pa.record_batch({"c": array}))


def ways(kind: str) -> dict[str, Way]:
    """All that a column of this kind can go to."""
    found: dict[str, Way] = {"digest": in_digest}
    for name in ("parquet", "arrow", "json", "csv"):
        found[name] = partial(in_s3, name)
    for declared in DECLARED.get(kind, []):
        for as_text in (False, True):
            name = f"{declared.label} as {'text' if as_text else 'binary'}"
            found[name] = partial(in_postgres, declared, as_text)
    if kind in ("word", "raw", "headers"):
        found["record"] = in_kafka
    return found


@sample.cases(5)
@pytest.mark.parametrize("kind", ALL_KINDS)
@settings(max_examples=25)
@given(data=st.data())
def test_the_same_values_are_written_the_same(kind: str, data: st.DataObject) -> None:
    arrow, values = ALL_KINDS[kind]
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=12))
    if pa.types.is_map(arrow):
        rows = [None if row is None else list(row.items()) for row in rows]
    array = pa.array(rows, arrow)
    plain = {way: outcome(write, array) for way, write in ways(kind).items()}
    for layout, same in layouts(array):
        same.validate(full=True)
        assert str(same.to_pylist()) == str(array.to_pylist()), layout
        for way, write in ways(kind).items():
            found = outcome(write, same)
            assert found == plain[way] or found in REFUSED, f"{layout} to {way}"


@pytest.mark.parametrize("kind", ["word", "long", "price", "list"])
@settings(max_examples=10)
@given(data=st.data())
def test_so_are_values_in_structs_and_lists(kind: str, data: st.DataObject) -> None:
    arrow, values = ALL_KINDS[kind]
    array = pa.array(data.draw(st.lists(st.none() | values, min_size=1, max_size=12)), arrow)
    for wrap in (_in_structs, _in_lists):
        plain = {way: outcome(write, wrap(array)) for way, write in ways("struct").items()}
        for layout, same in layouts(array):
            for way, write in ways("struct").items():
                found = outcome(write, wrap(same))
                assert found == plain[way] or found in REFUSED_INSIDE, f"{layout} to {way}"


def _in_structs(array: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([array], names=["a"])


def _in_lists(array: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(len(array) + 1), pa.int32()), array)


def outcome(write: Way, array: pa.Array) -> Any:
    """What is written, or the kind of the refusal."""
    try:
        return write(array)
    except (AbsError, pa.ArrowException) as refused:
        return type(refused)
