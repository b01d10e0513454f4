"""Schemas made of columns, slices of large batches, and jobs that have no need of the libraries."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_clients.avro.schema import arrow_type, parsed
from abs_core.contracts import Task
from abs_core.errors import OptionError
from abs_sinks.kafka.avro import columns
from abs_sinks.kafka.avro.choose import avro_of
from abs_sinks.kafka.avro.encode import encode
from abs_sinks.kafka.formats import Bytes, encoding
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.refusals import MisfitError
from tests.clients.avro.schemas import as_fastavro, records, values

GIVEN = {"kafka.bootstrap.servers": "b:9092", "topic": "t"}
AVRO = {"value.format": "avro", "registry.url": "http://registry"}


@given(st.data())
def test_what_is_written_with_a_schema_made_of_the_columns_is_read_by_fastavro(
    data: st.DataObject,
) -> None:
    source = parsed(json.dumps(data.draw(records())))
    arrow = arrow_type(source)
    drawn = data.draw(st.lists(values(source), min_size=1, max_size=4))
    column = pa.array(drawn, arrow)

    made = avro_of(arrow, "shop.Order", "value")
    node = parsed(json.dumps(made))
    encoded = encode(node, column, b"", "value").to_pylist()

    for record, value in zip(encoded, column.to_pylist(), strict=True):
        stream = io.BytesIO(record)
        assert fastavro.schemaless_reader(stream, made, None) == as_fastavro(node, value)
        assert not stream.read()


_NAMES = st.sampled_from(["a", "b", "a_b", "b_a", "a_", "a__b"])
_STRUCTS = st.recursive(
    st.just(pa.int32()),
    lambda inner: st.dictionaries(_NAMES, inner, min_size=1, max_size=3).map(
        lambda fields: pa.struct(list(fields.items()))
    ),
)


@given(_STRUCTS)
def test_records_of_columns_whose_names_join_to_the_same_have_names_of_their_own(
    arrow: pa.DataType,
) -> None:
    assert arrow_type(parsed(json.dumps(avro_of(arrow, "t_value", "value")))) == arrow


@pytest.mark.parametrize(
    ("arrow", "named"),
    [
        (pa.struct([("a b", pa.int32())]), "value.a b is no name of Avro's"),
        (pa.struct([("x", pa.month_day_nano_interval())]), "value.x is month_day_nano"),
        (pa.map_(pa.int32(), pa.int32()), "for which Avro has no type"),
        (pa.list_(pa.decimal256(50, 1)), r"value[] is decimal256(50, 1)"),
    ],
)
def test_a_type_without_a_schema_is_refused_by_name(arrow: pa.DataType, named: str) -> None:
    with pytest.raises(MisfitError) as refused:
        avro_of(arrow, "R", "value")
    assert named in refused.value.reason


def task() -> Task:
    return Task("0" * 16, "job", 1, 0, 0, "a" * 12)


def test_a_large_batch_is_encoded_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "PIECE_BYTES", 1000)
    batch = pa.record_batch([pa.array(["x" * 90] * 100)], names=["value"])
    encoder = encoding(KafkaOptions.parse({**GIVEN, **AVRO}), batch.schema, task())
    parts = list(encoder.parts(batch))
    assert len(parts) > 5
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([batch]))


def test_without_a_format_batches_stay_as_they_are() -> None:
    batch = pa.record_batch([pa.array([b"x"])], names=["value"])
    plain = encoding(KafkaOptions.parse(GIVEN), batch.schema, task())
    assert isinstance(plain, Bytes)
    assert plain.encoded(batch) is batch
    assert [*plain.parts(batch)] == [batch]


def test_a_job_of_bytes_imports_nothing_of_the_extra() -> None:
    code = (
        "import sys, abs_sinks.kafka.sink, abs_sources.kafka.source\n"
        "assert not {'fastavro', 'httpx', 'httpx2', 'attrs'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("library", ["fastavro", "fastavro.schema"])
def test_the_extra_that_is_missing_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(OptionError) as refused:
        KafkaOptions.parse({**GIVEN, **AVRO})
    assert "needs the Python package fastavro" in refused.value.what
    assert "abs-sinks[avro]" in refused.value.remedy


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"value.format": "protobuf"}, "The format protobuf is not supported"),
        ({"value.format": "avro"}, "needs the option registry.url"),
        ({"registry.url": "http://r"}, "registry.url has no meaning without"),
        ({**AVRO, "registry.url": "http://user:geheim@r"}, "has a user in it"),
        ({**AVRO, "registry.url": "ftp://r"}, "is not the address of a registry"),
        ({**AVRO, "key.schema": '"int"'}, "key.schema has no meaning without key.format=avro"),
        ({**AVRO, "value.schema": "{"}, "cannot be read"),
        ({**AVRO, "value.subject.name.strategy": "record"}, "set value.schema"),
        ({**AVRO, "value.subject.name.strategy": "associated"}, "topic_record"),
    ],
)
def test_options_that_contradict_each_other_are_refused(more: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError) as refused:
        KafkaOptions.parse({**GIVEN, **more})
    assert named in str(refused.value)
    assert "geheim" not in str(refused.value)


def test_the_column_topic_needs_a_subject_of_its_own() -> None:
    several: dict[str, Any] = {"kafka.bootstrap.servers": "b:9092", **AVRO}
    with pytest.raises(OptionError, match="needs the option topic"):
        KafkaOptions.parse(several)
    record = {"type": "record", "name": "shop.Order", "fields": []}
    named = {"value.schema": json.dumps(record), "value.subject.name.strategy": "record"}
    assert KafkaOptions.parse({**several, **named}).formats.subject("value", None) == "shop.Order"
