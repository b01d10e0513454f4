"""The Spark driver of every contestant: Parquet files, two an epoch, into one sink; then it ends.

Runs as a script on the scoreboard's own Python; its settings are JSON in ``ABS_SCOREBOARD``. It
contains nothing for the kills. Where only a sink's own reader understands its folder, that reader
exports the rows at the end, into ``seen``, and counts the files that no reader sees, into ``left``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession

Settings = dict[str, Any]
SCHEMA = "id BIGINT, word STRING, amount DOUBLE"
NAMES = {
    "table": "rows_written",
    "stage": "staged",
    "batches": "batches",
    "job": "scoreboard",
    "iceberg": "lake.db.t",
}
"""What the settings call the tables and the job; each situation of a contestant has its own."""
MESSAGE = ("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value")
EXTENSIONS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
    },
}


def options_of(given: Settings, target: str) -> dict[str, str]:
    """The options of our sink for a target."""
    options = {
        "postgres": {"url": given["url"], "dbtable": given["table"]},
        "kafka": {
            "kafka.bootstrap.servers": given["bootstrap"],
            "topic": given["topic"],
            # Each run is another job, and the broker is the same.
            "registertopic": f"{given['topic']}-register",
        },
        "s3": {
            "path": given["path"],
            "endpoint": given["endpoint"],
            "region": given["region"],
        },
        "delta": {"path": given["folder"], "createtable": "true"},
        "iceberg": {
            "table": given["iceberg"].partition(".")[2],
            "createtable": "true",
            "catalog": "lake",
            **catalog(given),
        },
    }[target]
    if target == "postgres" and (given["protocol"] == "idempotent" or given.get("keyed")):
        options |= {"write": "upsert", "key": "id"}
    if target == "kafka" and given["protocol"] == "wal":
        options["wal"] = f"file://{given['folder']}/wal"
    return {**options, "protocol": given["protocol"]}


def catalog(given: Settings) -> dict[str, str]:
    """Of our Iceberg sink: in a file, beside the table."""
    return {
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{given['work']}/catalog.db",
        "catalog.warehouse": f"file://{given['work']}/warehouse",
    }


def iceberg_table(given: Settings) -> Any:
    """As pyiceberg reads it; None where nobody has made it yet."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    properties = {name.partition(".")[2]: text for name, text in catalog(given).items()}
    try:
        return load_catalog("lake", **properties).load_table(given["iceberg"].partition(".")[2])
    except NoSuchTableError:
        return None


def make_namespace(given: Settings) -> None:
    """That of our Iceberg sink's tables, which the sink does not make."""
    from pyiceberg.catalog import load_catalog

    properties = {name.partition(".")[2]: text for name, text in catalog(given).items()}
    load_catalog("lake", **properties).create_namespace_if_not_exists("db")


def ours(target: str, stream: DataFrame, given: Settings) -> Any:
    rows = stream.selectExpr(*MESSAGE) if target == "kafka" else stream
    writer = rows.writeStream.format(f"abs-{target}")
    return writer.options(**options_of(given, target), job=given["job"])


def epoch(stream: DataFrame, given: Settings) -> Any:
    import abs_spark

    sinks = [
        abs_spark.sink(
            f"abs-{target}",
            options_of(given, target),
            name=target,
            select=MESSAGE if target == "kafka" else (),
        )
        for target in ("postgres", "kafka", "s3")
    ]
    function = abs_spark.epoch(sinks, job=given["job"], checkpointLocation=given["checkpoint"])
    return stream.writeStream.foreachBatch(function)


def spark_kafka(stream: DataFrame, given: Settings) -> Any:
    options = {"kafka.bootstrap.servers": given["bootstrap"], "topic": given["topic"]}
    return stream.selectExpr(*MESSAGE).writeStream.format("kafka").options(**options)


def folder(format_: str, stream: DataFrame, given: Settings) -> Any:
    return stream.writeStream.format(format_).option("path", given["folder"])


def iceberg(stream: DataFrame, given: Settings) -> Any:
    make = f"CREATE TABLE IF NOT EXISTS {given['iceberg']} ({SCHEMA}) USING iceberg"
    stream.sparkSession.sql(make)
    return stream.writeStream.format("iceberg")


def by_jdbc(batch: DataFrame, given: Settings, table: str, mode: str) -> None:
    options = {"url": given["jdbc"], "dbtable": table, "driver": "org.postgresql.Driver"}
    batch.write.format("jdbc").options(**options, truncate="true").mode(mode).save()


def jdbc_append(given: Settings, batch: DataFrame, number: int) -> None:
    by_jdbc(batch, given, given["table"], "append")


def merge(given: Settings, batch: DataFrame, number: int) -> None:
    by_jdbc(batch, given, given["stage"], "overwrite")
    with psycopg.connect(given["url"]) as connection:
        connection.execute(
            f"MERGE INTO {given['table']} t USING {given['stage']} s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET word = s.word, amount = s.amount "
            "WHEN NOT MATCHED THEN INSERT (id, word, amount) VALUES (s.id, s.word, s.amount)"
        )


def batch_id(given: Settings, batch: DataFrame, number: int) -> None:
    by_jdbc(batch, given, given["stage"], "overwrite")
    with psycopg.connect(given["url"]) as connection:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {given['batches']} (number bigint PRIMARY KEY)"
        )
        new = connection.execute(
            f"INSERT INTO {given['batches']} VALUES (%s) ON CONFLICT DO NOTHING", [number]
        )
        if new.rowcount:
            connection.execute(
                f"INSERT INTO {given['table']} SELECT id, word, amount FROM {given['stage']}"
            )


def deltalake(given: Settings, batch: DataFrame, number: int) -> None:
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    path = given["folder"]
    if DeltaTable.is_deltatable(path):
        done = DeltaTable(path).transaction_version(given["job"])
        if done is not None and done >= number:
            return
    said = CommitProperties(app_transactions=[Transaction(app_id=given["job"], version=number)])
    write_deltalake(path, batch.toArrow(), mode="append", commit_properties=said)


def recipe(
    write: Callable[[Settings, DataFrame, int], None], stream: DataFrame, given: Settings
) -> Any:
    return stream.writeStream.foreachBatch(partial(write, given))


RECIPES: dict[str, Callable[[Settings, DataFrame, int], None]] = {
    write.__name__: write for write in (jdbc_append, merge, batch_id, deltalake)
}
WAYS: dict[str, Callable[[DataFrame, Settings], Any]] = {
    **{target: partial(ours, target) for target in ("postgres", "kafka", "s3")},
    **{f"abs_{target}": partial(ours, target) for target in ("delta", "iceberg")},
    **{name: partial(recipe, write) for name, write in RECIPES.items()},
    "epoch": epoch,
    "spark_kafka": spark_kafka,
    "spark_files": partial(folder, "parquet"),
    "delta": partial(folder, "delta"),
    "iceberg": iceberg,
}


def seen(spark: SparkSession, given: Settings) -> DataFrame:
    """What a folder's own reader sees."""
    way, path = given["way"], given["folder"]
    if way in ("s3", "epoch"):
        reader = spark.read.format("abs-s3").schema(SCHEMA)
        return reader.options(**options_of(given, "s3"), job=given["job"]).load()
    if way == "iceberg":
        return spark.table(given["iceberg"])
    if way == "abs_iceberg":
        return spark.createDataFrame(iceberg_table(given).scan().to_arrow())
    if way in ("deltalake", "abs_delta"):
        from deltalake import DeltaTable

        return spark.createDataFrame(DeltaTable(path).to_pyarrow_table())
    return spark.read.format("parquet" if way == "spark_files" else way).load(path)


def export(spark: SparkSession, given: Settings) -> None:
    """What the sink's own reader sees, and how many of its files nobody sees."""
    way, path = given["way"], given["folder"]
    known: set[str] = set()
    rows = seen(spark, given)
    if way == "iceberg":
        known = {
            row[0] for row in spark.table(f"{given['iceberg']}.files").select("file_path").collect()
        }
    elif way == "abs_iceberg":
        path = f"{given['work']}/warehouse"
        known = {task.file.file_path for task in iceberg_table(given).scan().plan_files()}
    elif way in ("deltalake", "abs_delta"):
        from deltalake import DeltaTable

        known = {*DeltaTable(path).file_uris()}
    elif way != "s3":
        known = {*rows.inputFiles()}
    rows.write.mode("overwrite").parquet(given["seen"])
    names = {name.rpartition("/")[2] for name in known}
    there = [file.name for file in Path(path).rglob("*.parquet") if "_delta_log" not in file.parts]
    Path(given["left"]).write_text(str(len([name for name in there if name not in names])))


def session(given: Settings) -> SparkSession:
    conf = {**given["conf"], **EXTENSIONS.get(given["way"], {})}
    if given["way"] == "iceberg":
        conf["spark.sql.catalog.lake.warehouse"] = given["folder"]
    builder = SparkSession.builder.master("local[2]").appName(given["job"])
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if given["protocol"]:
        import abs_spark

        abs_spark.register(spark)
    return spark


def read(spark: SparkSession, given: Settings) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", given["files"])
    return reader.parquet(given["input"])


def start(writer: Any, given: Settings) -> Any:
    """The query that writes all that is there, and ends."""
    writer = writer.option("checkpointLocation", given["checkpoint"]).trigger(availableNow=True)
    return writer.toTable(given["iceberg"]) if given["way"] == "iceberg" else writer.start()


def write(stream: DataFrame, given: Settings) -> None:
    """All that is there, to its end."""
    start(WAYS[given["way"]](stream, given), given).awaitTermination()


def main() -> None:
    given: Settings = json.loads(os.environ["ABS_SCOREBOARD"])
    spark = session(given)
    write(read(spark, given), given)
    if given["exports"]:
        export(spark, given)
    spark.stop()


if __name__ == "__main__":
    main()
