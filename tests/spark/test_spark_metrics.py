"""The recipe of watching.md counts right for any mix of queries, beside what the targets hold."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from abs_services.processes import free_port
from tests.spark.bucket import Bucket
from tests.spark.drivers import interpreter
from tests.spark.test_spark_prometheus import snippet
from tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.services]

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "watching.md").read_text()

PROGRAM = """
import time
import urllib.request
import abs_spark
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
{lines}
spark.streams.addListener(abs_spark.listener(lambda event: None))
rows = spark.readStream.schema("id bigint, word string, at timestamp").option("maxFilesPerTrigger", "1")
rows = rows.parquet({input!r})
table = abs_spark.sink(
    "abs-postgres",
    {{"url": {url!r}, "dbtable": "few", "deadletter": "few_dead", "protocol": "wal"}},
    name="table",
)
items = abs_spark.sink("abs-s3", {bucket!r}, name="items", where="id % 2 = 0")
both = abs_spark.epoch([table, items], job="mixed", checkpointLocation={folder!r} + "/mixed")
queries = [
    rows.writeStream.foreachBatch(both).option("checkpointLocation", {folder!r} + "/mixed"),
    rows.writeStream.format("abs-postgres").option("url", {url!r}).option("dbtable", "t")
    .option("job", "alone").option("checkpointLocation", {folder!r} + "/alone"),
    rows.selectExpr("id % 7 as id", "id as at", "if(id % 7 = 0, 'd', 'c') as op", "word")
    .writeStream.format("abs-postgres").option("url", {url!r}).option("dbtable", "copy")
    .options(protocol="wal", write="changes", sequenceby="at", positions="side")
    .option("job", "changes").option("checkpointLocation", {folder!r} + "/changes"),
]
for query in [query.trigger(availableNow=True).start() for query in queries]:
    query.awaitTermination()
spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(120_000)


def scraped():
    # The bus has sent Spark's events; they may reach Python later.
    deadline = time.monotonic() + 60
    while True:
        text = urllib.request.urlopen("http://127.0.0.1:{port}/metrics").read().decode()
        lines = [line for line in text.splitlines() if line.startswith("abs_batches_total{{")]
        if sum(float(line.split()[-1]) for line in lines) >= 9 or time.monotonic() > deadline:
            return text
        time.sleep(0.1)


print(scraped())
spark.stop()
"""


def value(scraped: str, metric: str, **labels: str) -> float:
    """The sum of a metric over all series with these labels."""
    total = 0.0
    for line in scraped.splitlines():
        if match := re.fullmatch(rf"{metric}\{{(.*)\}} (\S+)", line):
            of = dict(re.findall(r'(\w+)="([^"]*)"', match[1]))
            if labels.items() <= of.items():
                total += float(match[2])
    return total


def test_rows_of_the_source_and_of_each_sink_are_those_of_the_targets(
    new_world: Callable[[], World], bucket: Bucket, tmp_path: Path
) -> None:
    """Two sinks under one decision with dead letters, a format beside them, and two listeners."""
    world, port = new_world(), free_port()
    world.add_files(range(3))
    with psycopg.connect(world.url, autocommit=True) as connection:
        connection.execute(
            "create table few (id bigint check (id % 10 <> 0), word text, at timestamptz);"
            "create table copy (id bigint primary key, word text)"
        )
    [two_lines] = re.findall(
        r"((?:^    \S.*\n)*^    abs_spark\.register\(spark\)\n(?:^    .*\n)*)", PAGE, re.MULTILINE
    )
    program = tmp_path / "program.py"
    program.write_text(
        snippet("python", "9464").replace("9464", str(port))
        + PROGRAM.format(
            lines=re.sub("^    ", "", two_lines, flags=re.MULTILINE),
            input=world.job.input,
            url=world.url,
            bucket=bucket.options,
            folder=str(tmp_path),
            port=port,
        )
    )
    done = subprocess.run(
        [interpreter(), str(program)], capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stderr[-4000:]
    scraped = done.stdout
    with psycopg.connect(world.url) as connection:
        held = {
            name: connection.execute(f"select count(*) from {name}").fetchone()
            for name in ("few", "few_dead", "t")
        }
    assert held == {"few": (108,), "few_dead": (12,), "t": (120,)}
    assert value(scraped, "abs_source_rows_total", job="mixed") == 120
    assert value(scraped, "abs_source_rows_total", job="alone") == 120
    assert value(scraped, "abs_rows_total", job="mixed", sink="table") == 108
    assert value(scraped, "abs_rows_total", job="mixed", sink="items") == len(bucket.ids()) == 60
    assert value(scraped, "abs_rows_total", job="alone") == 120
    assert value(scraped, "abs_dead_letters_total", job="mixed", sink="table") == 12
    assert value(scraped, "abs_dead_letters_total") == 12
    # Of three epochs with changes of seven keys each: the last one of each key, one of them a delete
    # of a row that is not there.
    assert value(scraped, "abs_changes_total", job="changes", applied="true") == 3 * 6
    assert value(scraped, "abs_changes_total", job="changes") == 120
    assert value(scraped, "abs_changes_total") == 120, "rows of another write are no changes"
    for job in ("mixed", "alone", "changes"):
        assert value(scraped, "abs_epochs_total", job=job) == 3
        assert value(scraped, "abs_batches_total", job=job) == 3
        assert value(scraped, "abs_frontier", job=job) == 2
    assert "an observer failed" not in done.stderr
    line = "40 rows of the source committed in "
    assert line in done.stderr
    assert ": 36 to table, 20 to items; 4 dead" in done.stderr
