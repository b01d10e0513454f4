"""Debezium's events in a topic: Avro by a registry, and records that are none."""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fastavro
import psycopg
import pytest
from confluent_kafka import Producer
from psycopg import Connection
from pyspark.sql import DataFrame, SparkSession

import abs_spark
from abs_clients.kafka.settings import Settings
from abs_services import KafkaService
from abs_services.registry import StandIn
from abs_spark.datasource.kafka import KafkaDataSource
from tests.kit.kafka import make_topic

pytestmark = [pytest.mark.spark, pytest.mark.services]

DECIMAL = "org.apache.kafka.connect.data.Decimal"


def optional(kind: Any) -> Any:
    return ["null", kind]


def envelope(*more: dict[str, Any], precision: str = "Micro", scale: int = 2) -> dict[str, Any]:
    """The schema that Kafka Connect registers for events of a table."""
    time = {"type": "long", "connect.name": f"io.debezium.time.{precision}Timestamp"}
    amount = {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": 50,
        "scale": scale,
        "connect.name": DECIMAL,
        "connect.parameters": {"scale": str(scale), "connect.decimal.precision": "50"},
    }
    fields = [
        {"name": "id", "type": "int"},
        {"name": "amount", "type": optional(amount), "default": None},
        {"name": "at", "type": optional(time), "default": None},
        *more,
    ]
    row = {"type": "record", "name": "Value", "connect.name": "db.t.Value", "fields": fields}
    source = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]}
    return {
        "type": "record",
        "name": "Envelope",
        "connect.name": "db.t.Envelope",
        "fields": [
            {"name": "before", "type": optional(row), "default": None},
            {"name": "after", "type": optional("Value"), "default": None},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
        ],
    }


def framed(number: int, schema: Any, lsn: int, **row: Any) -> bytes:
    """An event as the registry's clients write it."""
    out = io.BytesIO()
    event = {"after": row, "source": {"lsn": lsn}, "op": "c"}
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), event)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


@pytest.fixture
def topic(kafka: KafkaService) -> str:
    kafka.start()
    name = f"events{secrets.token_hex(4)}"
    make_topic(Settings.of({"bootstrap.servers": kafka.bootstrap}), name, 1)
    return name


@pytest.fixture
def db(database: str) -> Iterator[Connection[tuple[Any, ...]]]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table copy (id int primary key, amount numeric, at timestamp)")
        yield connection


def send(kafka: KafkaService, topic: str, values: Sequence[bytes | str]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value in values:
        producer.produce(topic, key=b"k", value=value)
    assert producer.flush(60) == 0


def events(spark: SparkSession, kafka: KafkaService, topic: str, **more: str) -> DataFrame:
    spark.dataSource.register(KafkaDataSource)
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic}
    reader = spark.readStream.format("abs-kafka").option("startingOffsets", "earliest")
    return reader.options(**given, **more).load()


def apply(changes: DataFrame, where: dict[str, str], folder: Path) -> None:
    """One run, until the topic is read."""
    (
        changes.writeStream.format("abs-postgres")
        .options(**where, job="copy", protocol="wal", write="changes")
        .options(positions="side", sequenceby="lsn", unchanged="unchanged")
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def test_avro_is_read_by_what_its_schema_means(
    kafka: KafkaService,
    topic: str,
    spark: SparkSession,
    database: str,
    db: Connection[tuple[Any, ...]],
    tmp_path: Path,
) -> None:
    where = {"url": database, "dbtable": "copy"}
    with StandIn() as registry:
        avro = {"value.format": "avro", "registry.url": registry.url}
        first = envelope()
        number = registry.add(f"{topic}-value", first)
        amount = (10**40 + 7).to_bytes(17, "big")
        bare = json.loads(json.dumps(first).replace('"logicalType": "decimal", ', ""))
        send(kafka, topic, [framed(number, bare, 1, id=1, amount=amount, at=-1)])
        apply(abs_spark.debezium(events(spark, kafka, topic, **avro), table=where), where, tmp_path)
        big = f"1{'0' * 38}.07"
        rows = "select id, amount::text, at::text from copy order by id"
        assert db.execute(rows).fetchall() == [(1, big, "1969-12-31 23:59:59.999999")]

        # A query that runs sees a newer schema: one that means something else, or has a column more.
        read = abs_spark.debezium(events(spark, kafka, topic, **avro), table=where)
        vip = {"name": "vip", "type": optional("boolean"), "default": None}
        newer = envelope(vip)
        bare = json.loads(json.dumps(newer).replace('"logicalType": "decimal", ', ""))
        number = registry.add(f"{topic}-value", newer)
        send(kafka, topic, [framed(number, bare, 2, id=2, amount=b"\x01", at=0, vip=True)])
        with pytest.raises(Exception, match=r"vip|newer schema"):
            apply(read, where, tmp_path)
        read = abs_spark.debezium(events(spark, kafka, topic, **avro), table=where)
        with pytest.raises(Exception, match="columns vip, which the table does not have"):
            apply(read, where, tmp_path)
        db.execute("alter table copy add vip boolean")
        apply(abs_spark.debezium(events(spark, kafka, topic, **avro), table=where), where, tmp_path)
        assert db.execute("select vip from copy where id = 2").fetchall() == [(True,)]


def test_a_record_that_is_no_json_is_named_and_can_be_a_dead_letter(
    kafka: KafkaService,
    topic: str,
    spark: SparkSession,
    database: str,
    db: Connection[tuple[Any, ...]],
    tmp_path: Path,
) -> None:
    db.execute("alter table copy drop amount, drop at")
    good = [json.dumps({"op": "c", "after": {"id": n}, "source": {"lsn": n}}) for n in range(200)]
    send(kafka, topic, [*good[:7], "{no json", *good[7:]])
    where = {"url": database, "dbtable": "copy"}
    with pytest.raises(Exception, match=f"record at offset 7 of {topic}-0 is not JSON"):
        apply(abs_spark.debezium(events(spark, kafka, topic), table=where), where, tmp_path)
    assert db.execute("select count(*) from copy").fetchone() == (0,)
    where["deadletter"] = "dead"
    apply(abs_spark.debezium(events(spark, kafka, topic), table=where), where, tmp_path)
    assert db.execute("select count(*) from copy").fetchone() == (200,)
    [(code, row)] = db.execute('select code, "row" from dead').fetchall()
    why, record = row["unchanged"]
    assert (code, record) == ("null", "{no json")
    assert f"offset 7 of {topic}-0" in why
