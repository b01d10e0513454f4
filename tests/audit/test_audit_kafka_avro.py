"""A topic of Avro is audited by its fields, decoded by the library that others read it with."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from abs_audit import Files, Report, audit, relation
from abs_audit.kafka_values import in_members
from abs_clients.avro.schema import arrow_type, parsed
from abs_core.errors import ConfigError, DataError, OptionError
from abs_services import KafkaService
from abs_services.registry import StandIn
from tests.audit.conftest import BY_ID
from tests.clients.avro.schemas import records, to_write, values

pytestmark = pytest.mark.services

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "text", "type": ["null", "string"], "default": None},
    {"name": "amount", "type": DECIMAL},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "raw", "type": "bytes"},
    {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "either", "type": ["null", "string", "long"]},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {
        "name": "inner",
        "type": {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "int"}]},
    },
]
OLDER = {"type": "record", "name": "Row", "fields": [FIELDS[0], *FIELDS[2:]]}
NEWER = {"type": "record", "name": "Row", "fields": FIELDS}
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("amount", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("uuid", pa.string()),
        ("either", pa.struct([("member0", pa.string()), ("member1", pa.int64())])),
        ("tags", pa.list_(pa.string())),
        ("inner", pa.struct([("n", pa.int32())])),
    ]
)


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "text": None,
        "amount": Decimal(number) / 4,
        "at": dt.datetime(2026, 11, 27, 1, 2, 3, number, dt.UTC),
        "day": dt.date(2026, 11, number + 1),
        "raw": bytes([number, 0]),
        "uuid": f"00000000-0000-4000-8000-00000000000{'aB'[number % 2]}",
        "either": [None, "a", number][number % 3],
        "tags": ["a"] * number,
        "inner": {"n": -number},
    }


ROWS = [row(number) for number in range(8)]


def as_columns(value: dict[str, Any]) -> dict[str, Any]:
    """The row as Arrow has it."""
    either = value["either"]
    members = {"member0": either} if isinstance(either, str) else {"member1": either}
    return {**value, "either": None if either is None else members}


class Topic:
    """A topic, its registry, and what the audit is to find in it."""

    def __init__(self, kafka: KafkaService, name: str, registry: StandIn, folder: Path) -> None:
        self.name, self.registry, self.folder = name, registry, folder
        self.bootstrap = kafka.bootstrap
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap})
        self._client = SchemaRegistryClient({"url": registry.url})

    def send(self, schema: Any, *rows: dict[str, Any]) -> None:
        encode = AvroSerializer(self._client, json.dumps(schema))
        at = SerializationContext(self.name, MessageField.VALUE)
        self.send_bytes(*(encode(each, at) for each in rows))

    def send_bytes(self, *values: bytes | None) -> None:
        for each in values:
            self._producer.produce(self.name, each, partition=0)
        assert self._producer.flush(30) == 0

    def audit(self) -> Report:
        expected = self.folder / "expected.parquet"
        pq.write_table(pa.Table.from_pylist(list(map(as_columns, ROWS)), COLUMNS), expected)
        config = self.folder / "client.properties"
        config.write_text(f"client.id=audit\nregistry.url={self.registry.url}\n")
        url = f"kafka://{self.bootstrap}/{self.name}?value=avro&config={config}"
        return audit(Files((str(expected),)), relation([url]), BY_ID)


@pytest.fixture
def there(kafka: KafkaService, topic: str, tmp_path: Path) -> Iterator[Topic]:
    with StandIn() as registry:
        yield Topic(kafka, topic, registry, tmp_path)


def test_every_type_is_compared_by_value_and_older_records_by_the_newest_schema(
    there: Topic,
) -> None:
    older = [{name: value for name, value in each.items() if name != "text"} for each in ROWS[:4]]
    there.send(OLDER, *older)
    there.send(NEWER, *ROWS[4:])
    report = there.audit()
    assert report.clean, report.reasons


@given(st.data())
def test_a_decoded_value_is_that_of_the_columns_unless_a_union_leaves_it_open(
    data: st.DataObject,
) -> None:
    schema = data.draw(records())
    node = parsed(json.dumps(schema))
    value = pa.array([data.draw(values(node))], arrow_type(node)).to_pylist()[0]
    stream = io.BytesIO()
    by_fastavro = fastavro.parse_schema(schema)
    fastavro.schemaless_writer(stream, by_fastavro, to_write(node, value))
    stream.seek(0)
    decoded = fastavro.schemaless_reader(stream, by_fastavro, None)
    members, open_ = None, ""
    try:
        members = in_members(node, decoded)
    except TypeError as error:
        open_ = str(error)
    assert "it may be 0 of" not in open_
    assert open_ or pa.array([members], arrow_type(node)).to_pylist()[0] == value


def test_a_changed_field_is_named_with_its_place(there: Topic) -> None:
    there.send(NEWER, *ROWS[:7], {**ROWS[7], "amount": Decimal("1.74")})
    (sample,) = there.audit().differences.samples["corrupted"]
    assert sample.changed == {"amount": ("1.75", "1.74")}
    assert sample.found_in == ("partition 0, offset 7",)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"{}", "at partition 0, offset 8 cannot be decoded"),
        (b"\0\0\0\x12\x67\2", "at partition 0, offset 8 cannot be decoded"),
        (None, "no value at offset 8"),
    ],
)
def test_a_record_that_is_none_is_an_error_with_its_place(
    there: Topic, value: bytes | None, told: str
) -> None:
    there.send(NEWER, *ROWS)
    there.send_bytes(value)
    with pytest.raises(DataError, match=told):
        there.audit()


def test_a_topic_without_a_schema_and_a_file_without_a_registry_are_told(there: Topic) -> None:
    there.send_bytes(b"{}")  # that it is not there yet would be waited for
    with pytest.raises(ConfigError, match=f"no schema under {there.name}-value"):
        there.audit()
    for url in ("?value=avro", f"?value=avro&config={there.folder / 'none'}"):
        with pytest.raises(OptionError, match=r"need a registry|cannot be read"):
            relation([f"kafka://{there.bootstrap}/{there.name}{url}"])
