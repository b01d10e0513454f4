"""A job does and says the same alone and after a job of other options in its process: every option."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import product
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abs_clients.kafka.cluster import cluster
from abs_clients.s3.objects import Objects
from abs_services import KafkaService, PostgresService, S3Service, fresh_database, in_database
from abs_sinks.kafka import options as kafka_options
from abs_sinks.kafka.register.session import FencedProducer, Session
from abs_sinks.options import COMMON
from abs_sinks.postgres import options as postgres_options
from abs_sinks.postgres.apply import target
from abs_sinks.s3 import options as s3_options
from abs_sources.kafka import attempt_filter as filters
from abs_sources.kafka.lookup import lookup
from abs_sources.kafka.options import OPTIONS as SOURCE_OPTIONS
from abs_sources.kafka.options import KafkaSourceOptions
from tests.kit.kafka import make_topic
from tests.kit.kafka_reading import messages
from tests.sample import cut
from tests.sinks.jobs_of_one_process import FOREIGN, Given, Jobs, differing, planted_anew

pytestmark = [pytest.mark.services, pytest.mark.long]

ELSEWHERE = {"value", "key", "registry"}
"""Beginnings of the options of records with a schema, which need a registry: they are NOT tried here.

``test_kafka_avro_sink.py`` and ``test_kafka_avro_registry.py`` in ``tests/sinks/kafka``, and
``tests/sources/kafka/test_kafka_source_avro.py`` try them, each in a job alone.
"""

SAMPLED = 3
"""Cases of a sink that the everyday test tries; the campaign tries all."""

OF_ALL: list[Given] = [
    {"patience": "40s"},
    {"replay": "count"},
    {"adopt": "consent"},
    {"checkpointLocation": "file:///nowhere/checkpoint"},
    {"job": "named"},
    {"epoch": "token"},
    {"queryName": "query"},
]
"""Changes of the options that every sink has."""


@pytest.fixture(scope="module")
def kafka_jobs(kafka: KafkaService, tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    kafka.start()
    folder = tmp_path_factory.mktemp("segments")
    base = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": "one", "registertopic": "cells"}
    wal = {**base, "protocol": "wal", "wal": f"file://{folder}/a"}
    options = kafka_options.KafkaOptions.parse({**base, "protocol": "2pc"})
    for name in ("one", "two", "refused"):
        make_topic(options.kafka, name, 2)

    def rows(number: int, given: Given) -> pa.RecordBatch:
        columns: dict[str, Any] = {"key": [b"a", b"b"]}
        columns["value"] = [b"%d.%d" % (number, n) for n in range(2)]
        if given.get("write") == "changes":
            operation = given.get("applyasdeletes", "op").partition("=")[0]
            columns |= {"seq": [1, 2], operation: ["c", "d"]}
        return pa.record_batch({**columns, **({} if given["topic"] else {"topic": ["one", "two"]})})

    def read(number: int, given: Given) -> Sequence[object]:
        found = [each for name in ("one", "two") for each in _records(kafka.bootstrap, name)]
        mine = [each for each in found if each[3].startswith(b"%d." % number)]
        return sorted((*seen, value.split(b".")[1]) for *seen, value in mine)

    return Jobs(
        "abs-kafka",
        [{**base, "protocol": "2pc"}, wal, {**base, "protocol": "idempotent"}],
        [
            *OF_ALL,
            {FOREIGN: "yes"},
            {"topic": "two"},
            {"topic": ""},  # left out: the column says
            {"producer": "librdkafka"},
            {"producer": "columnar"},
            {"registertopic": "other-cells"},
            {"wal": f"file://{folder}/b"},
            {"kafka.compression.type": "gzip"},
            {"kafka.batch.size": "200000"},
            {"kafka.linger.ms": "5"},
            {"kafka.transaction.timeout.ms": "50000"},
            {"kafka.client.id": "somebody"},
            {"kafka.partitioner": "consistent"},
            {"write": "changes", "sequenceby": "seq"},
            {"write": "changes", "sequenceby": "seq", "applyasdeletes": "gone=d"},
            {"deadletter": "refused"},
            {"deadletter": "refused", "deadlettermax": "50%"},
            {"deadletter": "refused", "deadlettercolumns": "value"},
        ],
        rows,
        read,
    )


PASSWORDS: dict[str, str] = {}


def password_of(parameters: Mapping[str, str]) -> str:
    """For the option passwordfunction."""
    return PASSWORDS[parameters["user"]]


@pytest.fixture(scope="module")
def postgres_jobs(
    postgres: PostgresService, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Jobs]:
    password_file = tmp_path_factory.mktemp("secrets") / "password"
    with fresh_database(postgres) as url:
        user, _, password = url.split("//")[1].split("@")[0].partition(":")
        open_url = url.replace(f":{password}@", "@")
        password_file.write_text(password)
        PASSWORDS[user] = password
        admin_url = in_database(postgres.admin_url, url.rpartition("/")[2])
        with psycopg.connect(admin_url, autocommit=True) as admin:
            # The table's identity is then in the state schema, and each schema has another.
            admin.execute("revoke execute on function pg_control_system() from public")
        with psycopg.connect(url, autocommit=True) as db:
            for name in ("one", "two"):
                db.execute(f"create table {name} (id bigint primary key, value text)")
            for name in ("changed", "aside"):
                db.execute(f"create table {name} (id bigint primary key, value text, seq bigint)")
        base = {"url": url, "dbtable": "one", "stateschema": "abs_one"}

        def rows(number: int, given: Given) -> pa.RecordBatch:
            columns: dict[str, Any] = {"id": [number * 10, number * 10 + 1], "value": ["a", "b"]}
            if given.get("write") == "changes":
                operation = given.get("applyasdeletes", "op").partition("=")[0]
                columns |= {"seq": [1, 2], operation: ["c", "d"]}
            if "unchanged" in given:
                columns["same"] = pa.array([[], []], pa.list_(pa.string()))
            return pa.record_batch(columns)

        def read(number: int, given: Given) -> Sequence[object]:
            with psycopg.connect(url) as db:
                query = (
                    f"select id - {number * 10}, value from {given['dbtable']} where id / 10 = %s"
                )
                return sorted(db.execute(query, [number]).fetchall())

        upsert = {"write": "upsert", "key": "id"}
        changes = {
            "write": "changes",
            "key": "id",
            "sequenceby": "seq",
            "dbtable": "changed",  # a table keeps its way to hold positions
        }
        aside = {**changes, "dbtable": "aside", "positions": "side"}
        named = "application_name=somebody"
        yield Jobs(
            "abs-postgres",
            [
                {**base, "protocol": "2pc"},
                {**base, "protocol": "wal"},
                {**base, **upsert, "protocol": "idempotent"},
            ],
            [
                *OF_ALL,
                {FOREIGN: "yes"},
                {"dbtable": "two"},
                {"url": f"{url}?{named}"},
                {"user": postgres.admin_url.split("//")[1].split("@")[0].split(":")[0]},
                {"password": "any"},
                {"url": open_url, "passwordcommand": f"cat {password_file}"},
                {"url": open_url, "passwordfile": str(password_file)},
                {"url": open_url, "passwordfunction": f"{__name__}:{password_of.__name__}"},
                {"stateschema": "abs_two"},
                upsert,
                {**upsert, "orderby": "value"},
                {"onconflict": "nothing"},
                changes,
                aside,
                {**aside, "exceptcolumns": "value"},
                {**changes, "committedat": ""},
                {**changes, "applyasdeletes": "gone=d"},
                {**changes, "tombstones": "1h"},
                {**changes, "unchanged": "same"},
                {"deadletter": "refused"},
                {"deadletter": "refused", "deadlettermax": "50%"},
                {"deadletter": "refused", "deadlettercolumns": "value"},
                {"schemachange": "ignore"},
                {"batchsize": "1"},
                {"createtable": "true"},
                {"locktimeout": "7"},
                {"connecttimeout": "7"},
            ],
            rows,
            read,
        )


@pytest.fixture(scope="module")
def s3_jobs(store: S3Service) -> Jobs:
    path = f"s3://{store.bucket}/jobs-of-one-process"
    base = {"path": path, "endpoint": store.endpoint, "region": store.region}
    objects = Objects(s3_options.S3Options.parse(base).bucket)

    def rows(number: int, given: Given) -> pa.RecordBatch:
        return pa.record_batch({"id": [number, number], "value": ["a", "b"]})

    def read(number: int, given: Given) -> Sequence[object]:
        found: list[object] = []
        for each in objects.list(path.split("/", 3)[3]):
            if "/_abs/" in each.key or "/_other/" in each.key:
                continue
            body = objects.get(each.key)
            assert body is not None
            data, name = body.data, each.key.rpartition(".")[2]
            if name == "parquet":
                table = pq.read_table(pa.BufferReader(data))
                if number in table["id"].to_pylist():
                    seen = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0)
                    found.append((table.drop(["id"]).to_pydict(), seen.compression))
            elif f'"id":{number},'.encode() in data or f"\n{number},".encode() in data:
                found.append(data.replace(str(number).encode(), b"N"))
        return sorted(found, key=str)

    return Jobs(
        "abs-s3",
        [{**base, "protocol": name} for name in ("2pc", "wal", "idempotent")],
        [
            *OF_ALL,
            {"path": f"{path}/below"},
            {"fileformat": "json"},
            {"fileformat": "csv"},
            {"fileformat": "csv", "header": "false"},
            {"partitionby": "value"},
            {"compression": "zstd"},
            {"endpoint": store.endpoint.replace("127.0.0.1", "localhost")},
            {"region": "eu-west-1"},
            {"pathstyle": "true"},
            {"timeout": "20"},
            {"sse": "AES256"},
            {"sse": "aws:kms", "ssekmskeyid": "key"},
            {"filename": "other"},
            {"partsize": "6MiB"},
            {"uploadthreads": "2"},
            {"rowgroupsize": "1MiB"},
            {"maxfilesize": "1MiB"},
            {"maxopenfiles": "1"},
            {"targetfilesize": "1MiB"},
            {"statepath": f"{path}/_other"},
            {"deadletter": f"{path}-refused"},
            {"deadletter": f"{path}-refused", "deadlettermax": "50%"},
            {"deadletter": f"{path}-refused", "deadlettercolumns": "value"},
        ],
        rows,
        read,
    )


JOBS = {
    "kafka_jobs": kafka_options.OPTIONS,
    "postgres_jobs": postgres_options.OPTIONS,
    "s3_jobs": s3_options.OPTIONS,
}


@pytest.fixture(params=JOBS)
def jobs(request: pytest.FixtureRequest) -> tuple[Jobs, Sequence[Any]]:
    return request.getfixturevalue(request.param), JOBS[request.param]


def test_every_option_of_every_sink_is_tried(jobs: tuple[Jobs, Sequence[Any]]) -> None:
    tried, options = jobs
    names = {option.name for option in (*COMMON, *options)}
    names = {name for name in names if "." not in name or name.split(".")[0] not in ELSEWHERE}
    assert names - tried.named() <= {"wal"}, "only abs-kafka takes it"


@pytest.mark.timeout(600)
def test_a_job_is_as_alone_after_a_job_of_other_options(jobs: tuple[Jobs, Sequence[Any]]) -> None:
    tried, _ = jobs
    _all_as_alone(tried, cut(_cases(tried), SAMPLED, f"jobs of one process, {tried.format}"))


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_a_job_is_as_alone_after_any_job_of_other_options(
    jobs: tuple[Jobs, Sequence[Any]],
) -> None:
    tried, _ = jobs
    _all_as_alone(tried, _cases(tried))


def _cases(jobs: Jobs) -> list[tuple[tuple[Given, Given], bool]]:
    return list(product(jobs.pairs(), (False, True)))


def _all_as_alone(jobs: Jobs, cases: Sequence[tuple[tuple[Given, Given], bool]]) -> None:
    for (first, second), same in cases:
        found = differing(jobs, first, second, same=same)
        assert not found, f"{_shown(first)} then {_shown(second)}, same={same}: {found}"


def _shown(given: Given) -> str:
    return json.dumps(dict(given))


def test_jobs_that_share_the_first_ones_options_with_its_session_are_found(
    kafka_jobs: Jobs,
) -> None:
    wal = kafka_jobs.bases[1]
    assert differing(kafka_jobs, wal, {**wal, "topic": ""}, same=False) == ""
    assert differing(kafka_jobs, wal, {**wal, "producer": "librdkafka"}, same=True) == ""
    opened, firsts = Session.open_producer, dict[Session, Any]()

    def of_the_first(session: Session, options: Any, job: str, timeout_ms: int) -> FencedProducer:
        return opened(session, firsts.setdefault(session, options), job, timeout_ms)

    with planted_anew((Session, "open_producer", of_the_first)):
        assert "AssertionError" not in differing(kafka_jobs, wal, {**wal, "topic": ""}, same=False)
    whatever = lambda producer, _, ms: producer.timeout_ms >= ms  # noqa: E731
    with planted_anew((FencedProducer, "fits", whatever)):
        assert differing(kafka_jobs, wal, {**wal, "producer": "librdkafka"}, same=True) == ""


def test_tables_that_are_kept_without_their_state_schema_are_found(postgres_jobs: Jobs) -> None:
    base = postgres_jobs.bases[1]
    other = {**base, "stateschema": "abs_two"}
    assert differing(postgres_jobs, base, other, same=False) == ""
    without = lambda o, schema: ("table", o.dbtable, o.key, o.orderby, schema)  # noqa: E731
    with planted_anew((target, "_key", without)):
        assert "target: " not in differing(postgres_jobs, base, other, same=False)


SOURCES: list[Given] = [
    {"startingOffsets": "earliest"},
    {"startingTimestamp": "1"},
    {"startingOffsetsByTimestamp": '{"t": {"0": 1}}'},
    {"startingOffsetsByTimestampStrategy": "latest"},
    {"endingOffsets": "latest"},
    {"endingTimestamp": "5"},
    {"endingOffsetsByTimestamp": '{"t": {"0": 5}}'},
    {"maxOffsetsPerTrigger": "5"},
    {"minPartitions": "5"},
    {"maxRecordsPerPartition": "5"},
    {"failOnDataLoss": "false"},
    {"skipOffsets": '{"t": {"0": [5]}}'},
    {"includeHeaders": "true"},
    {"winners": "true"},
    {"batchsize": "5"},
    {"patience": "7s"},
    {"kafka.fetch.max.bytes": "2000000"},
    {"subscribe": "", "assign": '{"t": [0]}'},
    {"subscribe": "", "subscribePattern": "t.*"},
]
"""Changes of a source's options; together they name every one."""


def _same_as_alone(change: Given) -> bool:
    """Whether what a source gets from its process after a plain one is what it would make itself."""
    plain = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    given = {name: text for name, text in {**plain, **change}.items() if text}
    first, second = (KafkaSourceOptions.parse(each, batch=True) for each in (plain, given))
    with closing(cluster(first.client)), closing(cluster(second.client)):
        for options in (first, second):
            made = filters.SideTopic(options, "t")._options
            kept = filters.attempt_filter(options, "t")._side._options
            if (kept, lookup(options)._patience) != (made, options.patience):
                return False
    return True


def test_what_sources_share_is_as_alone_whatever_their_options() -> None:
    names = {option.name for option in SOURCE_OPTIONS}
    names = {name for name in names if "." not in name or name.split(".")[0] not in ELSEWHERE}
    assert names <= {n for each in SOURCES for n in each}
    assert [change for change in SOURCES if not _same_as_alone(change)] == []


def test_a_filter_that_is_kept_without_its_patience_is_found() -> None:
    def old(options: KafkaSourceOptions, topic: str) -> filters.AttemptFilter:
        make = lambda: filters.AttemptFilter(filters.SideTopic(options, topic))  # noqa: E731
        return cluster(options.client).kept(("attempt filter", topic), make)

    with planted_anew((filters, "attempt_filter", old), match="patience"):
        assert [change for change in SOURCES if not _same_as_alone(change)] == []


def _records(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """Topic, key, names of headers, value: all committed records, in no order."""
    found = list[tuple[Any, ...]]()
    for message in messages({"bootstrap.servers": bootstrap}, topic):
        headers: Any = message.headers()
        names = [name for name, _ in headers or ()]
        found.append((topic, message.key(), names, message.value()))
    return found
