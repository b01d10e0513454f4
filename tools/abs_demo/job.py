"""The streaming job that the demo kills: from Parquet files through Spark to the targets.

Runs as a process: ``python -m abs_demo.job`` (the other engine's is ``embedded``). It contains
nothing for the kills, and ends when all files are in the target.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from abs_demo.engine import Engine
from abs_demo.flights import SCHEMA
from abs_demo.hops import (
    JOB,
    TABLE,
    Places,
    Route,
    from_topic,
    into_all,
    into_bucket,
    into_topic,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

UNSAFE = "unsafe"
"""In place of a protocol: a plain writer, at least once, to show the difference."""

_VARIABLE = "ABS_DEMO_JOB"
_LOOK_S = 1

# Quick to start and small; nothing here bears on what is promised.
_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    # A Python worker that starts on a busy machine takes longer than Spark's 15 seconds.
    "spark.python.authenticate.socketTimeout": "120s",
}
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Settings of the job.

    Args:
        places: the folder has ``input`` with the files; ``checkpoint`` and scratch files are put there.
        protocol: of PostgreSQL's sink, or ``UNSAFE``.
        files_per_epoch: most files of a Spark epoch.
    """

    places: Places
    protocol: str
    files_per_epoch: int
    route: Route = Route.DIRECT
    engine: Engine = Engine.SPARK

    @property
    def input(self) -> Path:
        return self.places.folder / "input"

    @property
    def checkpoint(self) -> Path:
        """Of the query that writes to PostgreSQL (the watched one), or the snapshots."""
        return self.places.folder / "checkpoint"

    @property
    def scratch(self) -> Path:
        return self.places.folder / "scratch"

    def command(self) -> list[str]:
        module = "abs_demo.job" if self.engine is Engine.SPARK else "abs_demo.embedded"
        return [sys.executable, "-m", module]

    def environment(self) -> dict[str, str]:
        """For the child. The settings hold credentials, and a command line can be listed."""
        return {
            **os.environ,
            **self.places.secrets,
            _VARIABLE: json.dumps(asdict(self), default=str),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(self.scratch),
        }

    @classmethod
    def here(cls) -> JobSettings:
        """Parse ``environment`` in the job."""
        document = json.loads(os.environ[_VARIABLE])
        places = {**document["places"], "folder": Path(document["places"]["folder"])}
        route, engine = Route(document["route"]), Engine(document["engine"])
        return cls(
            Places(**places), document["protocol"], document["files_per_epoch"], route, engine
        )


def run(settings: JobSettings) -> None:
    """Write all flights that are not yet written."""
    spark = _session(settings)
    _run_queries(spark, settings)
    spark.stop()


def _run_queries(spark: SparkSession, settings: JobSettings) -> None:
    schema = _spark_schema(SCHEMA)
    flights = (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", settings.files_per_epoch)
        .parquet(str(settings.input))
    )
    if settings.route is Route.CHAIN:
        _run_chain(spark, settings, flights, schema)
    else:
        into = _into_all if settings.route.is_one_query else _into_postgres
        into(flights, settings).trigger(availableNow=True).start().awaitTermination()


def _run_chain(spark: SparkSession, settings: JobSettings, flights: DataFrame, schema: str) -> None:
    """Run all hops at once, until the topic's readers have all that the first one wrote."""
    places = settings.places

    def begin(writer: DataStreamWriter, hop: str) -> StreamingQuery:
        checkpoint = places.folder / f"checkpoint-{hop}"
        return writer.option("checkpointLocation", str(checkpoint)).start()

    feeder = begin(into_topic(flights, places).trigger(availableNow=True), "kafka")
    readers = [
        _into_postgres(from_topic(spark, places, schema), settings).start(),
        begin(into_bucket(from_topic(spark, places, schema), places), "s3"),
    ]
    while not feeder.awaitTermination(_LOOK_S):
        for reader in readers:
            _raise_if_failed(reader)
    for reader in readers:
        reader.processAllAvailable()
        reader.stop()


def _raise_if_failed(query: StreamingQuery) -> None:
    if not query.isActive and (error := query.exception()) is not None:
        raise error


def _into_all(flights: DataFrame, settings: JobSettings) -> DataStreamWriter:
    checkpoint = str(settings.checkpoint)
    function = into_all(settings.protocol, settings.places, checkpoint, settings.route)
    return flights.writeStream.foreachBatch(function).option("checkpointLocation", checkpoint)


def _into_postgres(flights: DataFrame, settings: JobSettings) -> DataStreamWriter:
    if settings.protocol == UNSAFE:
        writer = _at_least_once(flights, settings.places.url)
    else:
        table = settings.places.table(settings.protocol)
        writer = flights.writeStream.format("abs-postgres").options(**table, job=JOB)
    return writer.option("checkpointLocation", str(settings.checkpoint))


def _at_least_once(flights: DataFrame, url: str) -> DataStreamWriter:
    """The usual way without this package: each task of ``foreachBatch`` copies its share."""

    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import psycopg
        from pgpq import ArrowToPostgresBinaryEncoder

        with (
            psycopg.connect(url) as connection,
            connection.cursor() as cursor,
            cursor.copy(f"COPY {TABLE} FROM STDIN (FORMAT BINARY)") as sending,
        ):
            encoder = None
            for batch in batches:
                if encoder is None:
                    encoder = ArrowToPostgresBinaryEncoder(batch.schema)
                    sending.write(encoder.write_header())
                sending.write(encoder.write_batch(batch))
            if encoder is not None:
                sending.write(encoder.finish())
        yield from ()

    def append(batch: DataFrame, epoch: int) -> None:
        batch.mapInArrow(copy, "done boolean").collect()

    return flights.writeStream.foreachBatch(append)


def _session(settings: JobSettings) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("abs-demo")
    for name, value in _CONF.items():
        builder = builder.config(name, value)
    return (
        builder.config("spark.local.dir", str(settings.scratch))
        .config("spark.sql.warehouse.dir", str(settings.scratch / "warehouse"))
        .config(
            "spark.driver.extraJavaOptions",
            f"{_JAVA_OPTIONS} -Djava.io.tmpdir={settings.scratch}",
        )
        .getOrCreate()
    )


def _spark_schema(schema: pa.Schema) -> str:
    types = {pa.int32(): "int", pa.string(): "string", pa.timestamp("us", "UTC"): "timestamp"}
    return ", ".join(f"{field.name} {types[field.type]}" for field in schema)


if __name__ == "__main__":
    run(JobSettings.here())
