"""Kafka to Kafka through Spark where brokers want TLS and a password, or a certificate, and ACLs allow
what is documented: the settings reach every process of the job, and no password reaches a log."""

from __future__ import annotations

import secrets
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from abs_clients.kafka.cluster import close_clusters
from abs_sinks.kafka import KafkaOptions
from abs_spark.datasource.kafka import KafkaDataSource
from tests.kit.kafka import make_topic
from tests.kit.kafka_reading import messages
from tests.kit.kafka_secured import SecuredKafka
from tests.sinks.kafka.certificates import Authority
from tests.sinks.kafka.secured import Principals, allow
from tests.spark.jobs.stream_files import Job, run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.services]

SOURCE, TARGET, REGISTER = "in", "out", "reg"
RECORDS = 60

READS = allow("TOPIC", f"{SOURCE}*", "READ", "DESCRIBE")
WRITES = allow("TOPIC", TARGET, "WRITE", "DESCRIBE")
ENDS = allow("TRANSACTIONAL_ID", "abs1:*", "WRITE", "DESCRIBE")
CELL = allow("TRANSACTIONAL_ID", "abs-register.*", "WRITE", "DESCRIBE")
CELLS = allow("TOPIC", REGISTER, "CREATE", "READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS")
"""What the pages on Kafka in ``docs/reference`` list for protocol 2pc, and nothing more."""


@pytest.mark.campaign
def test_a_job_through_spark_writes_each_record_once_with_what_is_documented(
    spark: SparkSession, spark_log: Path, tmp_path: Path
) -> None:
    with broker_of(None) as broker:
        client = Principals(broker).new(READS, WRITES, ENDS, CELL, CELLS)
        runs_once(broker, client, spark, tmp_path)
        assert client["sasl.password"] not in spark_log.read_text()


@pytest.mark.campaign  # without Spark in `make test`: tests/sinks/kafka/test_kafka_certificates.py
@pytest.mark.skipif(shutil.which("openssl") is None, reason="it makes the certificates")
def test_a_job_through_spark_is_let_in_by_its_certificate(
    spark: SparkSession, spark_log: Path, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "authority")
    me = authority.new()
    locked = {"ssl.key.location": str(me.locked), "ssl.key.password": me.password}
    with broker_of(authority) as broker:
        Principals(broker).grant(me.principal, READS, WRITES, ENDS, CELL, CELLS)
        runs_once(broker, me.client(broker) | locked, spark, tmp_path)
        assert me.password not in spark_log.read_text()


@contextmanager
def broker_of(authority: Authority | None) -> Iterator[SecuredKafka]:
    with SecuredKafka(None if authority is None else authority.certificate) as kafka:
        settings = KafkaOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap}).kafka
        make_topic(settings, SOURCE)
        make_topic(settings, TARGET)
        yield kafka
        close_clusters()


def runs_once(
    broker: SecuredKafka, client: Mapping[str, str], spark: SparkSession, folder: Path
) -> None:
    access = {f"kafka.{name}": value for name, value in client.items()}
    sent = fill(broker.bootstrap)
    spark.dataSource.register(KafkaDataSource)
    job = Job(
        input="",
        checkpoint=str(folder / "checkpoint"),
        scratch=str(folder / "scratch"),
        format="abs-kafka",
        options={**access, "topic": TARGET, "registertopic": REGISTER, "job": "secured"},
        source="abs-kafka",
        source_options={
            **access,
            "subscribe": SOURCE,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(RECORDS // 2),
        },
    )
    run_to_end(spark, job)
    assert committed(broker.bootstrap) == Counter(sent)


def fill(bootstrap: str) -> list[bytes]:
    """Put records into the source's topic; their values."""
    values = [secrets.token_hex(8).encode() for _ in range(RECORDS)]
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(SOURCE, value, value[:4])
    assert producer.flush(30) == 0
    return values


def committed(bootstrap: str) -> Counter[bytes]:
    """The target's topic, read to its end with read_committed."""
    found = messages({"bootstrap.servers": bootstrap}, TARGET)
    return Counter(message.value() or b"" for message in found)
