"""Topics that another client wrote with a schema: read as columns, by the reader's schema."""

from __future__ import annotations

import json
import pickle
import secrets
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from abs_clients.kafka.cluster import close_clusters
from abs_clients.kafka.configs import librdkafka_log
from abs_clients.kafka.settings import Settings
from abs_core.errors import DataError, OptionError, SchemaError
from abs_core.source import Limit
from abs_services import KafkaService
from abs_services.registry import StandIn
from abs_sources.kafka import KafkaSource, KafkaSourceOptions, read_schema
from tests.kit.kafka import make_topic

FIRST = {"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "int"}]}
SECOND = {
    **FIRST,
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": "-"}],
}


class Topic:
    """A topic of one partition, and the registry of its schemas."""

    def __init__(self, kafka: KafkaService, registry: StandIn) -> None:
        self.name = f"avro-{secrets.token_hex(6)}"
        self.registry = registry
        self.given = {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "subscribe": self.name,
            "startingOffsets": "earliest",
            "registry.url": registry.url,
            "value.format": "avro",
        }
        make_topic(Settings.of({"bootstrap.servers": kafka.bootstrap}), self.name, 1)
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap}, logger=librdkafka_log)
        self._client = SchemaRegistryClient({"url": registry.url})

    def send(self, schema: Any, *values: Any) -> None:
        """Values by the library's own serializer, which registers the schema."""
        encode = AvroSerializer(self._client, json.dumps(schema))
        at = SerializationContext(self.name, MessageField.VALUE)
        self.send_bytes(*(None if each is None else encode(each, at) for each in values))

    def send_bytes(self, *values: bytes | None) -> None:
        for each in values:
            self._producer.produce(self.name, each, partition=0)
        assert self._producer.flush(30) == 0

    def source(self, **more: str) -> KafkaSource:
        return KafkaSource(KafkaSourceOptions.parse({**self.given, **more}))

    def read(self, source: KafkaSource | None = None) -> pa.Table:
        source = source or self.source()
        start = source.initial()
        batches = []
        for split in source.splits(start, source.latest(start, Limit())):
            with closing(source.open(split)) as reader:
                while not reader.finished:
                    if (batch := reader.read(1.0)) is not None:
                        batches.append(batch)
        return pa.Table.from_batches(batches, source.schema)


@pytest.fixture
def topic(kafka: KafkaService) -> Iterator[Topic]:
    kafka.start()
    with StandIn() as registry:
        yield Topic(kafka, registry)
    close_clusters()


@pytest.mark.services
def test_records_of_older_schemas_are_read_by_the_newest(topic: Topic) -> None:
    topic.send(FIRST, {"id": 1}, None, {"id": 2})
    topic.send(SECOND, {"id": 3, "note": "x"})

    found = topic.read()

    assert found.schema.field("value").type == pa.struct(
        [("id", pa.int64()), ("note", pa.string())]
    )
    assert found.column("value").to_pylist() == [
        {"id": 1, "note": "-"},
        None,
        {"id": 2, "note": "-"},
        {"id": 3, "note": "x"},
    ]
    assert found.column("offset").to_pylist() == [0, 1, 2, 3]


@pytest.mark.services
def test_a_schema_that_is_given_is_the_columns(topic: Topic) -> None:
    topic.send(SECOND, {"id": 3, "note": "x"})
    given = {**FIRST, "fields": [{"name": "id", "type": "double"}]}
    found = topic.read(topic.source(**{"value.schema": json.dumps(given)}))
    assert found.column("value").to_pylist() == [{"id": 3.0}]


@pytest.mark.services
def test_every_reader_has_the_schema_that_was_planned_with(topic: Topic) -> None:
    topic.send(FIRST, {"id": 1})
    planned = topic.source().pinned()
    noted = {"name": "note", "type": "string", "default": "-"}
    topic.send({**FIRST, "fields": [*FIRST["fields"], noted]}, {"id": 3, "note": "x"})
    elsewhere: KafkaSource = pickle.loads(pickle.dumps(planned))
    assert topic.read(elsewhere).column("value").to_pylist() == [{"id": 1}, {"id": 3}]
    assert (
        read_schema({**topic.given, "includeHeaders": "true"}).field("value").type.num_fields == 2
    )


@pytest.mark.services
@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"{}", "does not begin with the id of a schema"),
        (b"\0\0\0\x12\x67\2", "its schema is 4711: There is no schema 4711"),
        (b"\0\0\0\0\1", "it ends within a value"),
        (b"\0\0\0\0\1\2\2", "it goes on after the value"),
    ],
)
def test_a_record_that_is_not_avro_is_an_error_with_its_place(
    topic: Topic, bad: bytes, why: str
) -> None:
    topic.send(FIRST, {"id": 1}, {"id": 2})
    topic.send_bytes(bad)
    with pytest.raises(DataError) as refused:
        topic.read()
    assert f"the value of the record at offset 2 of {topic.name}-0" in refused.value.what
    assert why in refused.value.what


@pytest.mark.services
def test_a_topic_without_a_schema_is_told_before_anything_is_read(topic: Topic) -> None:
    with pytest.raises(SchemaError, match=f"has no schema under {topic.name}-value"):
        read_schema(topic.given)


def parse(**more: str) -> KafkaSourceOptions:
    given = {"kafka.bootstrap.servers": "b:9092", "registry.url": "http://r", **more}
    return KafkaSourceOptions.parse(given)


@pytest.mark.parametrize(
    "where", [{"subscribe": "a,b"}, {"subscribePattern": "a.*"}, {"assign": '{"a":[0],"b":[0]}'}]
)
def test_the_newest_schema_of_several_topics_is_refused(where: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="reads by the newest schema of one topic"):
        parse(**where, **{"value.format": "avro"})
    assert parse(**where, **{"value.format": "avro", "value.schema": '"string"'}).formats.columns


@pytest.mark.parametrize("name", ["protobuf", "json_schema", "JSON"])
def test_other_formats_of_the_registry_are_refused_by_name(name: str) -> None:
    with pytest.raises(OptionError, match=f"The format {name} is not supported"):
        parse(subscribe="t", **{"value.format": name})
