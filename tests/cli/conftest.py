"""What tests of commands share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from abs_services import KafkaService, S3Service
from tests.cli.several import Several
from tests.kit.kafka import Variant, open_topic
from tests.spark.bucket import Bucket


@pytest.fixture
def job(
    database: str, kafka: KafkaService, store: S3Service, prefix: str, tmp_path: Path
) -> Iterator[Several]:
    """A job with sinks in PostgreSQL, Kafka and S3; nothing of it was run yet."""
    kafka.start()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table payments (key text, value text)")
    (tmp_path / "checkpoint").mkdir()
    with open_topic(kafka.bootstrap, Variant("2pc")) as topic:
        yield Several(database, topic, Bucket(store, prefix), tmp_path)
