"""Every snippet of the README and of the docs does what it says, as it stands there.

Only names of places are put in: of a server, a folder, a topic, a bucket. A new snippet fails the first
test until it is run by another one.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from abs_services import KafkaService, S3Service
from abs_sinks.kafka import KafkaOptions
from tests.kit.kafka import make_topic
from tests.kit.kafka_reading import all_records, new_reader
from tests.sinks.iceberg.harness import catalog_in
from tests.spark.bucket import Bucket
from tests.spark.drivers import until

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ROWS = 60
READING = "readStream"

JOBS = {
    "first": ("README.md", "rate-micro-batch"),
    "postgres stream": ("targets.md", 'payments.writeStream.format("abs-postgres")'),
    "postgres wal": ("targets.md", '.option("protocol", "wal")\n    .option("write", "upsert")'),
    "postgres idempotent": ("targets.md", '.option("protocol", "idempotent")'),
    "postgres batch": ("targets.md", 'df.write.format("abs-postgres")'),
    "changes": ("targets.md", "abs_spark.debezium("),
    "changes page": ("changes.md", "abs_spark.debezium(events, table=target"),
    "changes into a topic": ("changes.md", 'write="changes", sequenceby="lsn", checkpoint'),
    "kafka stream": ("targets.md", '.writeStream.format("abs-kafka")'),
    "kafka source": ("targets.md", '(\n    spark.readStream.format("abs-kafka")'),
    "s3 stream": ("targets.md", '.writeStream.format("abs-s3")'),
    "files source": ("files-source.md", 'spark.readStream.format("abs-files")'),
    "several sinks": ("targets.md", "abs_spark.epoch("),
    "lake": ("lake.md", "abs_spark.epoch("),
    "same epoch": ("same-epoch.md", "abs_spark.epoch("),
    "same epoch's report": ("same-epoch.md", "abs_spark.cut("),
    "batches by rows": ("running-on-spark.md", "maxBytesPerBatch"),
    "aggregates' table": ("aggregates.md", "create table"),
    "aggregates": ("aggregates.md", "abs_spark.epoch("),
    "a day's table": ("replace-a-day.md", "create table"),
    "a day": ("replace-a-day.md", '.write.format("abs-postgres")'),
    "quarantine": ("quarantine.md", "abs_spark.epoch("),
    "audit": ("targets.md", "abs audit --expected"),
    "make a topic": ("services.md", "python -c"),
}
"""The snippets that a test below runs: the page, and what tells the snippet from others on it."""

ELSEWHERE = {
    ("README.md", "make demo     #"): "CI, and tests/demo",
    ("README.md", "abs up postgres kafka"): "tests/services/test_abs_up.py",
    ("targets.md", "pip install"): "tests/spark/test_spark_discovery.py",
    ("running-on-spark.md", ""): "tests/spark/test_running_on_spark.py",
    ("several-sinks.md", "[sinks.table]"): "tests/cli/test_cli_sinks_file.py",
    ("several-sinks.md", "abs doctor --sinks"): "tests/cli/test_cli_sinks_file.py",
    ("dead-letters.md", "create table customer"): "tests/sinks/postgres/test_pg_dead_rows.py",
    ("dead-letters.md", "customer   1"): "tests/sinks/postgres/test_pg_dead_rows.py",
    ("access.md", ""): "tests/docs/test_access_page.py",
    ("from-your-job.md", ""): "tests/spark/test_spark_from_your_job.py",
    ("your-own-write.md", ""): "tests/spark/test_spark_once_page.py",
    ("first-stream.md", ""): "tests/docs/test_tutorial.py",
    ("tables.md", ""): "tests/spark/test_spark_lake.py",
    ("lake.md", "DayTransform()"): "tests/sinks/lake/test_lake_partitions.py",
    ("formats.md", ""): "tests/spark/test_spark_kafka_avro.py",
    ("try-your-job.md", "def copy("): "tests/chaos/test_chaos_plugin.py",
    ("try-your-job.md", "abs chaos --expected"): "tests/packaging/test_plugin.py",
    ("write-a-sink.md", ""): "tests/docs/test_write_a_sink.py",
    ("dead-letters.md", "sink:dead"): "tests/spark/test_spark_epoch_dead_letters.py",
    ("watching.md", "9464"): "tests/spark/test_spark_progress.py",
    ("watching.md", "abs_spark.listener("): "tests/spark/test_spark_observed.py",
    ("restores.md", "CHECKPOINT.before"): "tests/spark/test_spark_restored.py",
    ("operations.md", "signal.signal"): "tests/spark/test_spark_stopped.py",
    ("restores.md", "lost.json"): "tests/spark/test_spark_repair.py",
    ("when-it-stops.md", '.option("adopt", "TOKEN")'): "tests/spark/test_spark_files.py",
    ("abs.md", "Sinks({"): "tests/embedded/test_sinks_of_one_stream.py",
    ("proof.md", "tests/spec/test_specification.py"): "tests/spec/test_specification.py",
    ("proof.md", "tests/spec/test_traces.py"): "tests/spec/test_traces.py",
    ("proof.md", "tests/porcupine"): "tests/porcupine/test_porcupine.py",
    ("proof.md", "tests/core/test_power_loss.py"): "tests/core/test_power_loss.py",
    ("proof.md", "tests/sinks/test_power_loss.py"): "tests/sinks/test_power_loss.py",
    ("proof.md", "test_spark_third_readers.py"): "tests/spark/test_spark_third_readers.py",
}


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of each fenced block."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [(language, text) for language, text in found]


def snippet(name: str) -> str:
    page, mark = JOBS[name]
    path = next(one for one in PAGES if one.name == page)
    (found,) = [text for _, text in blocks(path) if mark in text]
    return found


def is_picture(text: str) -> bool:
    """A drawing, or the output of a command."""
    return any(mark in text for mark in "─━│╭")


def test_every_snippet_of_the_readme_and_the_docs_is_run_by_a_test() -> None:
    known = {*JOBS.values(), *ELSEWHERE}
    texts = {snippet(name) for name in JOBS}  # a page may show a job of the README again
    for page in PAGES:
        for language, text in blocks(page):
            if is_picture(text) and not language:
                continue
            run = [mark for name, mark in known if name == page.name and mark in text]
            assert run or text in texts, f"{page.name}: no test runs this snippet:\n{text}"


@dataclass
class Place:
    """Where the names of the snippets lie in this test, and what they refer to."""

    spark: SparkSession
    folder: Path
    names: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """The snippet, with places of this test."""
        made = snippet(name)
        for there, here in {
            '"/data/': f'"{self.folder}/data/',
            "'/data/": f"'{self.folder}/data/",
            '"/checkpoints/': f'"{self.folder}/checkpoints/',
            **self.names,
        }.items():
            made = made.replace(there, here)
        return made

    def run(self, text: str) -> Any:
        """Run it; what its last statement yields."""
        tree = ast.parse(text)
        last = tree.body[-1]
        names = {"spark": self.spark, **self.values}
        exec(compile(ast.Module(tree.body[:-1], []), "snippet", "exec"), names)
        if isinstance(last, ast.Expr):
            result = eval(compile(ast.Expression(last.value), "snippet", "eval"), names)
        else:
            exec(compile(ast.Module([last], []), "snippet", "exec"), names)
            result = names.get("query", names.get("rows"))
        self.values |= {k: v for k, v in names.items() if k not in ("spark", "__builtins__")}
        return result

    def to_the_end(self, query: StreamingQuery) -> None:
        try:
            query.processAllAvailable()
        finally:
            query.stop()


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Place]:
    folder = tmp_path / "data" / "payments"
    folder.mkdir(parents=True)
    for part in range(2):
        lines = [
            json.dumps({"id": n, "amount": n / 10, "at": f"2026-11-{1 + n % 3:02d}T08:15:{n:02d}Z"})
            for n in range(part * ROWS // 2, (part + 1) * ROWS // 2)
        ]
        (folder / f"{part}.json").write_text("\n".join(lines) + "\n")
    made = Place(spark, tmp_path)
    yield made
    for query in spark.streams.active:
        query.stop()
    spark.conf.unset("spark.sql.execution.arrow.maxBytesPerBatch")  # a snippet may have set it


@pytest.fixture
def in_postgres(place: Place, database: str) -> Place:
    """The snippets' database: the table as the page's job needs it."""
    parts: dict[str, Any] = dict(conninfo_to_dict(database))
    password = str(parts.pop("password", ""))
    place.names["postgresql://app@db.example/shop"] = make_conninfo(**parts)
    place.values |= {"url": make_conninfo(**parts), "password": password}
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "create table payments (id bigint primary key, amount numeric(12,2), at timestamptz)"
        )
    return place


@pytest.fixture
def in_kafka(place: Place, kafka: KafkaService, topic: str) -> Place:
    kafka.start()
    make_topic(KafkaOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap}).kafka, topic)
    place.names |= {
        'kafka://broker:9092/payments"': f'kafka://{kafka.bootstrap}/{topic}"',
        "kafka://broker:9092/payments ": f"kafka://{kafka.bootstrap}/{topic} ",
        "broker:9092": kafka.bootstrap,
        '"topic", "payments"': f'"topic", "{topic}"',
        '"topic": "payments"': f'"topic": "{topic}"',
        '"subscribe", "payments"': f'"subscribe", "{topic}"',
    }
    return place


@pytest.fixture
def in_s3(place: Place, bucket: Bucket) -> Place:
    given = bucket.options
    place.names |= {
        "s3://bucket/payments": given["path"],
        '# .option("endpoint", "http://host:port")': f'.option("endpoint", "{given["endpoint"]}")'
        f'.option("region", "{given["region"]}")',
    }
    return place


def payments_of(place: Place) -> None:
    """``payments``, as the page's first job makes it."""
    made, _, _ = place.text("postgres stream").partition("query =")
    place.run(made)


def audited(place: Place, to: str, environment: Mapping[str, str]) -> str:
    """Run the page's audit of one target by a shell; its output, if it found the target clean."""
    lines = place.text("audit").splitlines()
    (command,) = [line for line in lines if line.startswith("abs ") and to in line]
    ended = subprocess.run(
        ["bash", "-c", f"{lines[0]}\n{command}"],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        | dict(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def test_the_first_code_of_the_readme_runs_as_it_stands(
    in_postgres: Place,
    kafka: KafkaService,
    topic: str,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka.start()
    monkeypatch.setenv("ABS_POSTGRES_URL", database)
    monkeypatch.setenv("ABS_KAFKA_BOOTSTRAP", kafka.bootstrap)
    place = in_postgres
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("drop table payments")
    code = snippet("first").replace("/tmp/payments", str(place.folder / "checkpoint"))
    code = code.replace('NewTopic("payments"', f'NewTopic("{topic}"')
    code = code.replace('"topic": "payments"', f'"topic": "{topic}"')
    start, wait, _ = code.partition("query.awaitTermination()")
    assert wait
    query = place.run(start)
    until(
        lambda: (query.lastProgress or {"batchId": 0})["batchId"] >= 2, "three epochs are written"
    )
    query.stop()
    with psycopg.connect(database) as connection:
        row = connection.execute("select count(*), count(distinct value) from payments").fetchone()
    assert row is not None
    assert row[0] == row[1] >= 2000
    reader = new_reader(kafka.bootstrap)
    sent = [record.value for record in all_records(reader, topic, 4)]
    reader.close()
    assert len(sent) == len({*sent}) == row[0]


def test_the_stream_to_postgresql_and_its_audit(in_postgres: Place, database: str) -> None:
    in_postgres.to_the_end(in_postgres.run(in_postgres.text("postgres stream")))
    assert "CLEAN" in audited(in_postgres, "--table", {"URL": database})


@pytest.mark.parametrize("name", ["postgres wal", "postgres idempotent"])
def test_the_options_for_upsert(in_postgres: Place, name: str, database: str) -> None:
    job = in_postgres.text("postgres stream")
    assert job.count("    .start()") == 1
    in_postgres.to_the_end(
        in_postgres.run(job.replace("    .start()", in_postgres.text(name) + "    .start()"))
    )
    with psycopg.connect(database) as connection:
        row = connection.execute("select count(*), count(distinct id) from payments").fetchone()
    assert row == (ROWS, ROWS)


def test_the_batch_that_may_be_run_again(in_postgres: Place, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table orders (id bigint)")
        in_postgres.values["df"] = in_postgres.spark.range(10)
        for _ in range(2):
            in_postgres.run(in_postgres.text("postgres batch"))
        row = connection.execute("select count(*), count(distinct id) from orders").fetchone()
    assert row == (10, 10)


def test_the_stream_to_kafka_its_audit_and_the_source(in_kafka: Place) -> None:
    payments_of(in_kafka)
    in_kafka.to_the_end(in_kafka.run(in_kafka.text("kafka stream")))
    assert "CLEAN" in audited(in_kafka, "kafka://", {})

    read: DataFrame = in_kafka.run(in_kafka.text("kafka source"))
    name = f"read_{os.getpid()}"
    in_kafka.to_the_end(read.writeStream.format("memory").queryName(name).start())
    assert in_kafka.spark.sql(f"select count(distinct key) from {name}").first()[0] == ROWS  # type: ignore[index]


@pytest.mark.parametrize("name", ["changes", "changes page"])
def test_a_topic_of_debezium_ends_as_the_sources_table(
    in_postgres: Place, in_kafka: Place, topic: str, kafka: KafkaService, database: str, name: str
) -> None:
    import abs_spark

    send_changes(kafka, topic)
    place = in_kafka
    place.values["abs_spark"] = abs_spark
    place.to_the_end(place.run(place.text(name)))
    with psycopg.connect(database) as connection:
        found = connection.execute("select id, amount::text from payments").fetchall()
    assert found == [(1, "9.99")]


def send_changes(kafka: KafkaService, topic: str) -> None:
    """Two rows, of which one changes and one is deleted, as Debezium sends them."""
    from confluent_kafka import Producer

    rows = [(1, "1.50", "c", 1), (2, "2.00", "c", 2), (1, "9.99", "u", 3), (2, None, "d", 4)]
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for key, amount, op, lsn in rows:
        row = {"id": key, "amount": amount, "at": "2026-11-20T08:00:00Z"}
        images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        event = {"op": op, "source": {"lsn": lsn}, **images}
        producer.produce(topic, key=str(key), value=json.dumps(event))
    assert producer.flush(60) == 0


def test_changes_go_into_a_topic_with_a_tombstone_for_a_delete(
    in_kafka: Place, topic: str, kafka: KafkaService
) -> None:
    import abs_spark

    send_changes(kafka, topic)
    place, into = in_kafka, f"orders-{topic}"
    make_topic(
        KafkaOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap, "topic": into}).kafka,
        into,
        2,
    )
    read = {"kafka.bootstrap.servers": kafka.bootstrap, "startingOffsets": "earliest"}
    events = place.spark.readStream.format("abs-kafka").options(**read, subscribe=topic).load()
    place.values |= {"abs_spark": abs_spark, "events": events}
    text = place.text("changes into a topic").replace('"orders"', f'"{into}"')
    text = text.replace('DECIMAL(12,2)")', 'DECIMAL(12,2)", decimals="string")')
    place.to_the_end(place.run(text))
    found = place.spark.read.format("abs-kafka").options(**read, subscribe=into).load()
    told: dict[str, list[str | None]] = {}
    for row in found.orderBy("partition", "offset").collect():
        value = None if row["value"] is None else json.loads(row["value"])["amount"]
        told.setdefault(bytes(row["key"]).decode(), []).append(value and str(value))
    assert told == {"1": ["1.5", "9.99"], "2": ["2.0", None]}


def test_the_stream_to_s3_and_its_audit(in_s3: Place, s3: S3Service) -> None:
    payments_of(in_s3)
    in_s3.run(in_s3.text("batches by rows"))
    in_s3.to_the_end(in_s3.run(in_s3.text("s3 stream")))
    keys = {"AWS_ACCESS_KEY_ID": s3.access_key, "AWS_SECRET_ACCESS_KEY": s3.secret_key}
    said = audited(in_s3, "s3://", {**keys, "AWS_ENDPOINT_URL": s3.endpoint})
    assert "CLEAN" in said
    assert "not compared: day" in " ".join(said.split())


def test_one_stream_to_three_targets(
    in_postgres: Place, in_kafka: Place, in_s3: Place, bucket: Bucket, database: str
) -> None:
    place, given = in_s3, bucket.options
    path, more = f'"path": "{given["path"]}"', f'"endpoint": "{given["endpoint"]}"'
    place.names[f"{{{path}}}"] = f'{{{path}, {more}, "region": "{given["region"]}"}}'
    payments_of(place)
    place.to_the_end(place.run(place.text("several sinks")))
    assert bucket.ids() == dict.fromkeys(range(ROWS), 1)
    with psycopg.connect(database, autocommit=True) as connection:
        found = connection.execute("select count(*), count(distinct id) from payments").fetchone()
    assert found == (ROWS, ROWS)
    # amount is n / 10, so the condition leaves those above 30
    read: DataFrame = place.run(place.text("kafka source"))
    name = f"alerts_{os.getpid()}"
    place.to_the_end(read.writeStream.format("memory").queryName(name).start())
    assert place.spark.sql(f"select count(*) from {name}").first()[0] == ROWS - 31  # type: ignore[index]


def test_one_stream_to_postgresql_kafka_and_iceberg(
    in_postgres: Place, in_kafka: Place, database: str, tmp_path: Path
) -> None:
    place = in_postgres
    payments_of(place)
    catalog = catalog_in(tmp_path / "catalog")
    named = ", ".join(f'"catalog.{name}": "{value}"' for name, value in catalog.items())
    place.names['"catalog": "prod"'] = named
    place.to_the_end(place.run(place.text("lake")))
    with psycopg.connect(database, autocommit=True) as connection:
        found = connection.execute("select count(*), count(distinct id) from payments").fetchone()
    assert found == (ROWS, ROWS)
    lake = load_catalog("default", **catalog).load_table("db.payments").scan().to_arrow()
    assert sorted(lake["id"].to_pylist()) == list(range(ROWS))
    assert lake["day"].to_pylist() == [f"{at:%Y-%m-%d}" for at in lake["at"].to_pylist()]
    read: DataFrame = place.run(place.text("kafka source"))
    name = f"events_{os.getpid()}"
    place.to_the_end(read.writeStream.format("memory").queryName(name).start())
    assert place.spark.sql(f"select count(*) from {name}").first()[0] == ROWS  # type: ignore[index]


@pytest.mark.parametrize("lake", ["iceberg", pytest.param("delta", marks=pytest.mark.campaign)])
def test_a_report_joins_a_table_a_topic_and_a_bucket_at_one_epoch(
    in_kafka: Place, in_s3: Place, bucket: Bucket, tmp_path: Path, lake: str
) -> None:
    place, given = in_s3, bucket.options
    path, more = f'"path": "{given["path"]}"', f'"endpoint": "{given["endpoint"]}"'
    place.names[f"{{{path}}}"] = f'{{{path}, {more}, "region": "{given["region"]}"}}'
    table = '"abs-iceberg",\n        {"table": "db.payments", "catalog": "prod",'
    assert table in snippet("same epoch")
    if lake == "delta":
        place.names[table] = f'"abs-delta", {{"path": "{tmp_path}/data/lake",'
    catalog = catalog_in(tmp_path / "catalog")
    named = ", ".join(f'"catalog.{name}": "{value}"' for name, value in catalog.items())
    place.names['"catalog": "prod"'] = named
    payments_of(place)
    place.to_the_end(place.run(place.text("same epoch")))
    place.run(place.text("same epoch's report"))
    rows: DataFrame = place.values["rows"]
    total = Decimal(sum(range(ROWS))) / 10
    assert rows.collect() == [(ROWS, total, 0, 0)]
    later = {"id": ROWS, "amount": 1000, "at": "2026-11-05T08:15:00Z"}
    (tmp_path / "data" / "payments" / "later.json").write_text(json.dumps(later) + "\n")
    place.to_the_end(place.run(place.text("same epoch")))
    assert rows.collect() == [(ROWS, total, 0, 0)], "a cut stays what it is"
    place.run(place.text("same epoch's report"))
    assert place.values["rows"].collect() == [(ROWS + 1, total + 1000, 0, 0)]


def test_running_aggregates_are_kept_current(in_postgres: Place, database: str) -> None:
    payments_of(in_postgres)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(in_postgres.text("aggregates' table").encode())
        for more in (0, 1):  # the second run adds a payment of 0.50 to a day that was written
            line = json.dumps({"id": ROWS, "amount": 0.5, "at": "2026-11-01T09:00:00Z"}) * more
            (in_postgres.folder / "data" / "payments" / f"more-{more}.json").write_text(line)
            in_postgres.to_the_end(in_postgres.run(in_postgres.text("aggregates")))
            query = "select payments, (amount * 10)::int from totals order by day"
            days = [list(range(day, ROWS, 3)) for day in range(3)]
            expected = [(len(tenths), sum(tenths)) for tenths in days]
            expected[0] = (expected[0][0] + more, expected[0][1] + 5 * more)
            assert connection.execute(query).fetchall() == expected


def test_a_days_rows_are_replaced_once(in_postgres: Place, database: str) -> None:
    def deliver(delivery: int, amounts: dict[int, float]) -> None:
        folder = in_postgres.folder / "data" / "sales" / str(delivery)
        folder.mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps({"id": n, "day": "2026-11-20", "amount": a}) for n, a in amounts.items()
        ]
        (folder / "0.json").write_text("\n".join(lines) + "\n")
        text = in_postgres.text("a day")
        assert 'day, delivery = "2026-11-20", 2\n' in text
        in_postgres.run(text.replace('"2026-11-20", 2', f'"2026-11-20", {delivery}'))

    in_postgres.values["url"] = database
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(in_postgres.text("a day's table").encode())
        connection.execute("insert into sales values (9, '2026-11-19', 9, 1)")
        query = "select id, amount::float from sales order by id"
        deliver(1, {1: 1.5, 2: 2.5, 3: 3.5})
        assert connection.execute(query).fetchall() == [(1, 1.5), (2, 2.5), (3, 3.5), (9, 9.0)]
        for _ in range(2):
            deliver(2, {1: 1.5, 3: 33.0, 4: 4.5})
            assert connection.execute(query).fetchall() == [(1, 1.5), (3, 33.0), (4, 4.5), (9, 9.0)]
        deliver(1, {1: 1.5, 2: 2.5, 3: 3.5})
        assert connection.execute(query).fetchall() == [(1, 1.5), (3, 33.0), (4, 4.5), (9, 9.0)]


def test_a_bad_record_is_in_the_quarantine_and_the_others_in_the_table(
    in_postgres: Place,
    in_kafka: Place,
    bucket: Bucket,
    kafka: KafkaService,
    topic: str,
    database: str,
    tmp_path: Path,
) -> None:
    from confluent_kafka import Producer

    given = bucket.options
    in_kafka.names['{"path": "s3://bucket/quarantine"'] = json.dumps(given)[:-1]
    at = "2026-11-20T08:00:00Z"
    good = [json.dumps({"id": n, "amount": n, "at": at}) for n in range(5)]
    bad = ["this is not json", json.dumps({"amount": 1, "at": at}), json.dumps({"id": 9, "at": at})]
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for text in [*good, *bad]:
        producer.produce(topic, value=text)
    assert producer.flush(60) == 0
    in_kafka.to_the_end(in_kafka.run(in_kafka.text("quarantine")))
    with psycopg.connect(database) as connection:
        rows = connection.execute("select id from payments order by id").fetchall()
    assert rows == [(n,) for n in range(5)]
    copied = Path(bucket.copied_to(tmp_path / "copied"))
    texts = [file.read_text() for file in copied.rglob("*.json")]
    found = [json.loads(line) for text in texts for line in text.splitlines()]
    assert sorted(one["text"] for one in found) == sorted(bad)
    assert {one["topic"] for one in found} == {topic}


def test_the_source_of_files(place: Place) -> None:
    landing = place.folder / "landing" / "2026-11"
    landing.mkdir(parents=True)
    (landing / "1.json").write_text('{"id":1,"word":"a","at":"2026-11-20T00:00:00Z"}\n')
    place.names |= {
        "s3://bucket/checkpoints": f"{place.folder}/checkpoints",
        "s3://bucket/landing": f"{place.folder}/landing",
    }
    read: DataFrame = place.run(place.text("files source"))
    writer = read.writeStream.format("memory").queryName(f"files_{os.getpid()}")
    place.to_the_end(writer.option("checkpointLocation", f"{place.folder}/checkpoints/job").start())
    assert place.spark.sql(f"select id from files_{os.getpid()}").collect() == [(1,)]


def test_the_command_that_makes_a_topic(
    kafka: KafkaService, topic: str, listed: Callable[[str], bool]
) -> None:
    ended = subprocess.run(
        ["bash", "-c", snippet("make a topic").replace(" payments", f" {topic}")],
        env={
            **os.environ,
            "ABS_KAFKA_BOOTSTRAP": kafka.bootstrap,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert listed(topic)


@pytest.fixture
def listed(kafka: KafkaService) -> Callable[[str], bool]:
    """Whether the broker knows the topic."""
    from confluent_kafka.admin import AdminClient

    kafka.start()
    client = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 2})
    return lambda name: name in client.list_topics(name, timeout=60).topics
