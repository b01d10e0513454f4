"""Nulls of a DataFrame through Kafka and back into a DataFrame."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from abs_services import KafkaService
from abs_spark.datasource.kafka import KafkaDataSource
from tests.kit.kafka import Variant, open_topic

pytestmark = [pytest.mark.spark, pytest.mark.services]

ROWS = (
    "VALUES ('k', 'v', 'all'), ('k', null, null), (null, 'v', null), (null, null, ''), ('', '', '')"
)


def test_a_dataframes_nulls_are_tombstones_and_no_keys_and_come_back_as_nulls(
    kafka: KafkaService, spark: SparkSession
) -> None:
    kafka.start()
    spark.dataSource.register(KafkaDataSource)
    rows = spark.sql(f"SELECT * FROM {ROWS} AS rows(key, value, note)")
    noted = rows.selectExpr(
        "key",
        "value",
        "CASE WHEN note IS NOT NULL THEN array(named_struct('key', 'note', 'value', "
        "CAST(nullif(note, '') AS BINARY))) END AS headers",
    )
    with open_topic(kafka.bootstrap, Variant("2pc")) as harness:
        access = {"kafka.bootstrap.servers": kafka.bootstrap}
        named = {"topic": harness.topic, "registertopic": harness.options.registertopic}
        written = noted.write.format("abs-kafka").mode("append").options(**access, **named)
        written.option("job", "nulls").option("epoch", "1").save()
        read = spark.read.format("abs-kafka").options(**access, includeHeaders="true")
        found = read.option("subscribe", harness.topic).load().collect()
    assert sorted(repr((text(r.key), text(r.value), notes(r.headers))) for r in found) == sorted(
        map(
            repr,
            [
                ("k", "v", ["all"]),
                ("k", None, None),
                (None, "v", None),
                (None, None, [None]),
                ("", "", [None]),
            ],
        )
    )


def text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode()


def notes(headers: list[tuple[str, bytes | None]] | None) -> list[str | None] | None:
    return None if headers is None else [text(value) for _, value in headers]
