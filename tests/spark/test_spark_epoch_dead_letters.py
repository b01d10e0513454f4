"""Dead letters in ``abs_spark.epoch``: of several sinks, in their own systems or in another sink."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import abs_spark
from abs_clients.postgres.name import TableName
from abs_core import deadletters as core
from abs_core.crash import CrashPoint
from abs_core.errors import OptionError
from abs_core.model import Dead
from abs_sinks.deadletters.letter import schema_of
from abs_sinks.deadletters.row import rows_of
from abs_sinks.door import format_at
from abs_sinks.postgres.letter_table import ddl
from abs_spark.foreach.function import Epoch
from abs_spark.foreach.spec import EpochSink
from tests.kit.command import abs_
from tests.kit.kafka import make_topic
from tests.planted import planted
from tests.spark.drivers import killed_at
from tests.spark.epoch_world import EpochWorld, once
from tests.spark.jobs.stream_files import Job, run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.usefixtures("store")]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "dead-letters.md"
FILES, ROWS = 3, 40
POISON = "id % 200 = 7"
"""0.5 %, and one in each file."""
PLACED = [
    "cast(id as string) as key",
    "cast(id as string) as value",
    f"case when {POISON} then 99 end as partition",
]
NOTED = ["*", f"case when {POISON} then concat('a', char(0)) end as note"]
WORDED = ["id", f"case when {POISON} then concat('a', char(0)) else word end as word", "at"]
TO_DEAD = {"deadletter": "sink:dead", "deadlettermax": "1"}


def ids(files: int = FILES) -> list[int]:
    return [number * 1000 + row for number in range(files) for row in range(ROWS)]


def bad() -> list[int]:
    return [id_ for id_ in ids() if id_ % 200 == 7]


def good() -> Counter[int]:
    return once([id_ for id_ in ids() if id_ % 200 != 7])


def made_table(world: EpochWorld) -> None:
    with psycopg.connect(world.files.url, autocommit=True) as connection:
        connection.execute(ddl(TableName.parse("dead")))


def dead_sink(world: EpochWorld) -> EpochSink:
    return abs_spark.sink("abs-postgres", {"url": world.files.url, "dbtable": "dead"}, name="dead")


def letters(world: EpochWorld) -> dict[str, Counter[int]]:
    """The ids of dead letters in the table, by the sink that refused them."""
    places = format_at(world.files.url).letters()
    assert places is not None
    kept = places.at(world.files.url, "dead", None, {})
    found: dict[str, Counter[int]] = {}
    for letter in kept.shown([each["id"] for each in kept.found()]):
        row = rows_of([letter["row"]], schema_of(letter["schema"])).to_pylist()[0]
        id_ = row["id"] if "id" in row else int(row["value"])
        found.setdefault(letter["code"], Counter())[id_] += 1
    return found


def payments(world: EpochWorld) -> Counter[int]:
    with psycopg.connect(world.files.url, autocommit=True) as connection:
        return Counter(row[0] for row in connection.execute("select id from t"))


def missing(world: EpochWorld, folder: Path) -> dict[str, int]:
    """By `abs audit --sinks`: rows of the input that a target and its dead letters do not have."""
    audit = {"expected": f"{world.files.job.input}/*.parquet", "key": "id", "columns": "id"}
    sinks = {
        "payments": ("abs-postgres", {"url": world.files.url, "dbtable": "t"}, audit),
        "items": ("abs-s3", world.bucket.options, audit),
        "dead": ("abs-postgres", {"url": world.files.url, "dbtable": "dead"}, {}),
    }
    lines = ['job = "job"']
    for name, (kind, options, compared) in sinks.items():
        lines += [f"[sinks.{name}]", f'format = "{kind}"', f"[sinks.{name}.options]"]
        lines += [f"{key} = {json.dumps(text)}" for key, text in options.items()]
        lines += [f"[sinks.{name}.audit]"]
        lines += [f"{key} = {json.dumps(text)}" for key, text in compared.items()]
    file = folder / "job.toml"
    file.write_text("\n".join(lines))
    done = abs_("audit", "--sinks", str(file), "--json")
    assert done.exit_code in (0, 1), (done.output, done.exception)
    return {name: report["missing"] for name, report in json.loads(done.stdout)["sinks"].items()}


def both_to_the_table(world: EpochWorld) -> Epoch:
    return world.epoch(
        world.postgres(), world.to_kafka(select=PLACED), world.to_s3(select=NOTED), dead_sink(world)
    )


def test_two_sinks_give_their_dead_letters_to_a_third(
    spark: SparkSession, world: EpochWorld, tmp_path: Path
) -> None:
    made_table(world)
    world.files.add_files(range(FILES), ROWS)
    world.kafka_options = TO_DEAD
    world.bucket.options |= {**TO_DEAD, "fileformat": "json"}
    world.run(spark, both_to_the_table(world))
    assert letters(world) == {"partition": once(bad()), "nul-character": once(bad())}
    assert Counter(int(value) for _, value in world.kafka.read()) == good()
    assert payments(world) == once(ids())
    recorded = world.register().recent
    assert {recent.dead for recent in recorded} == {(Dead(1, ROWS, 1), Dead(2, ROWS, 1))}
    assert {recent.rows for recent in recorded} == {3 * ROWS}
    world.files.forget_commits(1)
    world.run(spark, both_to_the_table(world))
    assert letters(world) == {"partition": once(bad()), "nul-character": once(bad())}
    assert missing(world, tmp_path) == {"payments": 0, "items": 0}
    with psycopg.connect(world.files.url, autocommit=True) as connection:
        connection.execute("delete from dead where code = 'nul-character'")
    assert missing(world, tmp_path) == {"payments": 0, "items": FILES}


def test_the_pages_sinks_give_their_dead_letters_to_its_table(
    spark: SparkSession, world: EpochWorld
) -> None:
    [text] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    text = text.replace('"topic": "alerts"', f'"topic": "{world.kafka.topic}"')
    text = text.replace('"path": "s3://bucket/items"', "**bucket")
    text = text.replace('"/checkpoints/orders"', f'"{world.checkpoint}"')
    names = {
        "abs_spark": abs_spark,
        "bucket": world.bucket.options,
        "kafka": {"kafka.bootstrap.servers": world.kafka.bootstrap},
        "postgres": {"url": world.files.url},
    }
    exec(text, names)
    write: Any = names["epoch"]
    made_table(world)
    world.files.add_files(range(1), ROWS)
    world.run(spark, lambda df, epoch: write(df.selectExpr("id", *PLACED), epoch))
    assert letters(world) == {"partition": once([7])}
    assert sorted(int(value) for _, value in world.kafka.read()) == [
        id_ for id_ in range(ROWS) if id_ != 7
    ]


def test_a_sink_of_kafka_takes_dead_letters_with_connects_headers(
    spark: SparkSession, world: EpochWorld
) -> None:
    world.files.add_files(range(1), ROWS)
    world.bucket.options |= {**TO_DEAD, "fileformat": "json"}
    dead = replace(world.to_kafka(), select=(), name="dead")
    world.run(spark, world.epoch(world.to_s3(select=NOTED), dead))
    (text,) = [value for _, value in world.kafka.records()]
    letter = json.loads(text or b"")
    assert (letter["code"], json.loads(letter["row"])["id"]) == ("nul-character", 7)


@pytest.mark.parametrize("protocol", ["2pc", "wal"])
def test_all_rows_bad_stop_the_query(spark: SparkSession, world: EpochWorld, protocol: str) -> None:
    made_table(world)
    world.files.add_files(range(1), 300)
    world.kafka_options = {"deadletter": "sink:dead", "protocol": protocol}
    select = [*PLACED[:2], "99 as partition"]
    function = world.epoch(world.postgres(), world.to_kafka(select=select), dead_sink(world))
    with pytest.raises(StreamingQueryException, match="deadlettermax"):
        world.run(spark, function)
    assert letters(world) == {}
    assert not payments(world) + Counter(world.kafka.read())


@pytest.mark.parametrize("protocol", ["2pc", "wal"])
def test_a_table_gives_what_the_client_judges_to_another_of_its_database(
    spark: SparkSession, world: EpochWorld, protocol: str
) -> None:
    """Under 2pc both tables are in one transaction of each task."""
    made_table(world)
    world.files.add_files(range(FILES), ROWS)
    world.postgres_options = {**TO_DEAD, "protocol": protocol}
    own = {"url": world.files.url, "dbtable": "dead", "protocol": protocol}
    dead = abs_spark.sink("abs-postgres", own, name="dead")
    for _ in range(2):
        world.run(spark, world.epoch(world.postgres(select=WORDED), dead))
        assert letters(world) == {"nul-character": once(bad())}
        assert payments(world) == good()
        world.files.forget_commits(1)
    assert {recent.dead for recent in world.register().recent} == {(Dead(0, ROWS, 1),)}


def test_a_table_whose_rows_are_all_bad_leaves_nothing_open(
    spark: SparkSession, world: EpochWorld
) -> None:
    make_topic(world.kafka.options.kafka, f"{world.kafka.topic}-dead")
    world.files.add_files(range(1), ROWS)
    world.postgres_options = {**TO_DEAD, "protocol": "wal"}
    dead = replace(world.to_kafka(), select=(), name="dead")
    worded = [WORDED[0], "concat('a', char(0)) as word", WORDED[2]]
    world.run(spark, world.epoch(world.postgres(select=worded), dead))
    assert len(world.kafka.records()) == ROWS
    assert payments(world) == Counter()
    assert world.left_behind() == []


def test_a_table_of_the_lake_gives_its_dead_letters_to_another_sink(
    spark: SparkSession, world: EpochWorld, tmp_path: Path
) -> None:
    made_table(world)
    world.files.add_files(range(FILES), ROWS)
    place = {"path": str(tmp_path / "items"), "createtable": "true", "partitionby": "folder"}
    select = ["id", f"case when {POISON} then repeat('x', 1100) else 'f' end as folder"]
    items = abs_spark.sink("abs-delta", {**place, **TO_DEAD}, name="items", select=select)
    for _ in range(2):
        world.run(spark, world.epoch(items, dead_sink(world)))
        assert letters(world) == {"too-long": once(bad())}
        rows = DeltaTable(place["path"]).to_pyarrow_table()
        assert Counter(rows["id"].to_pylist()) == good()
        world.files.forget_commits(1)


def test_letters_that_are_not_counted_are_found(
    spark: SparkSession, world: EpochWorld, tmp_path: Path
) -> None:
    # Spark's tasks run in processes of their own: there the counts come from, here they are dropped.
    with planted((core, "counts_of", lambda committables: [])):
        test_two_sinks_give_their_dead_letters_to_a_third(spark, world, tmp_path)


def test_names_and_options_that_do_not_fit_are_refused(world: EpochWorld) -> None:
    world.kafka_options = TO_DEAD
    for sinks, told in (
        ([world.postgres(), world.to_kafka()], "no other sink of this epoch"),
        ([world.to_kafka(), replace(dead_sink(world), where="true")], "gets dead letters, and has"),
        (
            [replace(world.to_kafka(), select=(), transform=lambda df: df), dead_sink(world)],
            "has a transform",
        ),
        ([replace(world.to_kafka(), name="dead")], "no other sink"),
        (
            [world.to_kafka(), replace(world.to_kafka(), name="dead", select=())],
            "has the option deadletter itself",
        ),
    ):
        with pytest.raises(OptionError, match=told):
            world.epoch(*sinks)
    with pytest.raises(OptionError, match="no place of its own"):
        abs_spark.sink("abs-delta", {"path": "/tmp/items", "deadletter": "items_dead"})


def test_a_sink_alone_has_no_other_for_its_dead_letters(
    spark: SparkSession, world: EpochWorld
) -> None:
    world.files.add_files(range(1))
    options = {
        "kafka.bootstrap.servers": world.kafka.bootstrap,
        "topic": world.kafka.topic,
        "checkpointLocation": str(world.checkpoint),
        "deadletter": "sink:dead",
    }
    stream = world.stream(spark).selectExpr("cast(id as string) as value").writeStream
    with pytest.raises(Exception, match="this sink is alone"):
        stream.format("abs-kafka").options(**options).start().awaitTermination()


def _poisoned_job(world: EpochWorld, protocol: str) -> Job:
    """Kafka keeps dead letters in a topic, S3 gives its own to a table."""
    job = world.job(protocol)
    payments, alerts, items = job.sinks
    topic = {"deadletter": f"{world.kafka.topic}-dead", "deadlettermax": "1"}
    alerts |= {"select": PLACED, "options": {**alerts["options"], **topic}}
    items |= {"select": NOTED, "options": {**items["options"], **TO_DEAD, "fileformat": "json"}}
    to_table = {"dbtable": "dead", "protocol": protocol}
    dead: dict[str, object] = {"format": "abs-postgres", "name": "dead", "options": to_table}
    return replace(job, sinks=[payments, alerts, items, dead])


@pytest.mark.parametrize(
    ("protocol", "point"),
    [
        ("2pc", CrashPoint.AFTER_DECIDE),
        *(
            pytest.param(protocol, point, marks=pytest.mark.campaign)
            for protocol in ("2pc", "wal")
            for point in (
                CrashPoint.AFTER_PRE_COMMIT,
                CrashPoint.BEFORE_PRE_COMMIT,
                CrashPoint.AFTER_DECIDE,
                CrashPoint.BETWEEN_COMMITS,
            )
            if (protocol, point) != ("2pc", CrashPoint.AFTER_DECIDE)
        ),
    ],
)
def test_killed_drivers_lose_and_double_no_row_and_no_dead_letter(
    spark: SparkSession, world: EpochWorld, protocol: str, point: CrashPoint
) -> None:
    made_table(world)
    make_topic(world.kafka.options.kafka, f"{world.kafka.topic}-dead")
    job = _poisoned_job(world, protocol)
    world.files.add_files(range(FILES), ROWS)
    killed_at(point, 1, job, world.files.folder / "killed", world.files.url)
    run_to_end(spark, job, world.files.url)
    url = f"kafka://{world.kafka.bootstrap}/{world.kafka.options.registertopic}"
    places = format_at(url).letters()
    assert places is not None
    kept = places.at(url, f"{world.kafka.topic}-dead", None, {})
    found = kept.shown([each["id"] for each in kept.found()])
    assert Counter(int(json.loads(each["row"])["value"]) for each in found) == once(bad())
    assert letters(world) == {"nul-character": once(bad())}
    assert Counter(int(value) for _, value in world.kafka.read()) == good()
    assert payments(world) == once(ids())
    assert world.left_behind() == []
