"""A table that went back gets its epochs again, by the steps of docs/how-to/operations.md."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from abs_services import KafkaService
from abs_sinks.kafka.options import KafkaOptions
from tests.kit.command import abs_prints
from tests.kit.kafka import make_topic
from tests.spark.test_spark_snippets import PAGES, blocks

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.campaign]


def steps() -> tuple[str, str]:
    """The command and the program of the page."""
    (page,) = [one for one in PAGES if one.name == "operations.md"]
    command, program = [text for _, text in blocks(page) if "lost.json" in text]
    return command, program


def orders_of(events: DataFrame) -> DataFrame:
    return events.select(col("value").cast("string").cast("long").alias("id"))


def test_epochs_that_a_restore_has_undone_are_written_again_once(
    spark: SparkSession, kafka: KafkaService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.start()
    monkeypatch.chdir(tmp_path)
    topic, table, checkpoint = (
        f"orders-{tmp_path.name}",
        tmp_path / "table",
        tmp_path / "checkpoint",
    )
    servers = {"kafka.bootstrap.servers": kafka.bootstrap}
    make_topic(KafkaOptions.parse({**servers, "topic": topic}).kafka, topic, 2)
    source = {**servers, "subscribe": topic}
    sink = {"path": str(table), "createtable": "true"}
    produced: list[int] = []

    def produce(count: int) -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for _ in range(count):
            producer.produce(topic, str(len(produced)))
            produced.append(len(produced))
        assert producer.flush(60) == 0

    def run() -> None:
        reading = spark.readStream.format("abs-kafka").options(**source, startingOffsets="earliest")
        writing = orders_of(reading.load()).writeStream.format("abs-delta").options(**sink)
        writing = writing.option("job", "orders").option("checkpointLocation", str(checkpoint))
        writing.trigger(availableNow=True).start().awaitTermination()

    for count in (5, 7, 11):
        produce(count)
        run()
    DeltaTable(table).restore(1)
    produce(2)
    with pytest.raises(Exception, match=r"18 rows of the finished epoch\(s\) 1 to 2"):
        run()
    command, program = steps()
    told = command.replace("/lake/orders", str(table)).replace(
        "/checkpoints/orders", str(checkpoint)
    )
    arguments = shlex.split(told.partition(">")[0])[1:]
    Path("lost.json").write_text(abs_prints(0, *arguments))
    names = {"spark": spark, "source": source, "sink": sink, "orders_of": orders_of}
    for _ in range(2):  # whoever does not know whether it was done repeats it
        exec(program, names)
    abs_prints(0, *(each for each in arguments if each != "--json"), "--done")
    run()
    assert sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist()) == produced
