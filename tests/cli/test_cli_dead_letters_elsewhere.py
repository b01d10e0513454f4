"""``abs deadletters`` and ``abs audit --deadletters`` of topics and folders."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from abs_clients.s3.objects import Objects
from abs_core.contracts import Task
from abs_core.errors import OptionError
from abs_core.model import Wrote, job_key
from abs_services import KafkaService, S3Service
from abs_services.registry import StandIn
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.sink import KafkaSink
from abs_testing.case import JOB, Case, rows
from abs_testing.engine import Run
from abs_testing.harness import Row
from tests.kit.command import abs_
from tests.kit.kafka import PARTITIONS, TopicHarness, Variant, delete_topics, make_topic
from tests.kit.kafka_reading import messages
from tests.planted import planted
from tests.sinks.dead_letters import is_poison
from tests.sinks.kafka import buried as kafka_buried
from tests.sinks.s3 import buried as s3_buried

pytestmark = pytest.mark.services


def _abs(*arguments: str) -> tuple[int, str]:
    done = abs_(*arguments)
    return done.exit_code, done.stdout


def listed(*where: str) -> list[str]:
    """The ids of the letters that are listed."""
    code, printed = _abs("deadletters", "list", *where, "--json")
    found = json.loads(printed)
    assert code == (1 if found else 0)
    return [str(each["id"]) for each in found]


def audited(folder: Path, given: Sequence[Mapping[str, object]], *actual: str) -> tuple[int, str]:
    (folder / "given.json").write_text("".join(f"{json.dumps(row)}\n" for row in given))
    return _abs("audit", "--expected", str(folder / "given.json"), "--actual", *actual)


def elsewhere(sink: str, replay: Sequence[str]) -> None:
    """A replay to another target than the letters' is refused, and done as the error says."""
    refused = abs_(*replay, "--yes").exception
    assert isinstance(refused, OptionError)
    assert f"The letters were refused by {sink} " in refused.what
    consent = re.findall(r"--refused-by \S+(?=\.$)", refused.remedy)[0].split()
    assert _abs(*replay, "--yes", *consent) == (0, "1 dead letters replayed\n")


def test_letters_of_a_topic_are_listed_shown_replayed_and_audited(
    kafka: KafkaService, tmp_path: Path
) -> None:
    kafka.start()
    with kafka_buried.buried(kafka.bootstrap, Variant("2pc")) as harness:
        case = Case(harness)
        case.run().epoch(0, [(n, json.dumps({"id": n})) for n in range(10)])
        url = f"kafka://{harness.bootstrap}/{harness.options.registertopic}"
        where = ("--url", url, "--deadletter", harness.dead)
        ids = listed(*where)
        shown = json.loads(_abs("deadletters", "show", *ids, *where)[1])
        assert [json.loads(each["row"])["key"] for each in shown] == ["2", "7"]
        topic = f"kafka://{harness.bootstrap}/{harness.topic}"
        given = [{"id": n} for n in range(10)]
        assert audited(tmp_path, given, topic)[0] == 1
        code, printed = audited(tmp_path, given, topic, "--deadletters", harness.dead)
        assert code == 0, printed
        code, printed = audited(tmp_path, given[1:], topic, "--deadletters", harness.dead)
        assert code == 1, printed
        again = ("deadletters", "replay", ids[0], *where, "--topic", harness.topic, "--yes")
        code, printed = _abs(*again)
        assert code != 0, "the partition is still not there"
        # Letters whose values are no record of the topic are named, and the others compared.
        others = ["no JSON", "[1]", "", '{"id": "\\ud800"}']
        case.run().epoch(1, [(7 + 10 * n, value) for n, value in enumerate(others)])
        code, printed = audited(tmp_path, given, topic, "--deadletters", harness.dead, "--json")
        report = json.loads(printed)
        assert (code, report["missing"], report["unexpected"]) == (1, 0, 0)
        assert len(report["left_behind"]["unchecked"]) == len(others)
        assert _abs("deadletters", "show", "9:9", *where)[0] == 1
        other = f"{harness.topic}-other"
        make_topic(harness.options.kafka, other, partitions=kafka_buried.NOWHERE + 1)
        elsewhere(harness.topic, ("deadletters", "replay", ids[1], *where, "--topic", other))
        assert len(messages({"bootstrap.servers": harness.bootstrap}, other)) == 1
        assert ids[1] not in listed(*where)
        delete_topics(harness.options.kafka, [other])
        case.close()


@pytest.fixture(scope="module")
def registry() -> Iterator[StandIn]:
    with StandIn() as served:
        yield served


AVRO = {
    "keys": ({"key.format": "avro"}, pa.string(), pa.binary(), ("k", b"v")),
    "texts": (
        {"value.format": "avro", "value.schema": '"string"'},
        pa.string(),
        pa.string(),
        ("k", "v"),
    ),
    "records": (
        {"value.format": "avro", "key.format": "avro"},
        *(pa.int64(), pa.struct([("a", pa.int64())])),
        (7, {"a": 5}),
    ),
}


@pytest.mark.parametrize("name", AVRO)
def test_a_letter_of_a_topic_is_written_again_as_its_job_writes(
    name: str, kafka: KafkaService, registry: StandIn
) -> None:
    kafka.start()
    formats, key, value, row = AVRO[name]
    more = {**formats, "registry.url": registry.url, "registry.register": "true"}
    with closing(TopicHarness(kafka.bootstrap, Variant("2pc"), more)) as harness:
        dead = f"{harness.topic}-dead"
        make_topic(harness.options.kafka, dead)
        options = replace(harness.options, deadletter=dead, deadlettermax=1.0)
        schema = pa.schema([("key", key), ("value", value), ("partition", pa.int32())])
        run = Run(KafkaSink(options, schema), "job")
        state, _ = run.begin(0)
        writer = run.sink.writer(Task(state.register, "job", state.generation, 0, 0, "a1"))
        rows = [dict(zip(schema.names, (*row, place), strict=True)) for place in (0, PARTITIONS)]
        writer.write(pa.RecordBatch.from_pylist(rows, schema=schema))
        run.commit(0, [Wrote(2, writer.pre_commit())])
        admin = AdminClient({"bootstrap.servers": harness.bootstrap})
        admin.create_partitions([NewPartitions(harness.topic, PARTITIONS + 1)])[
            harness.topic
        ].result()
        url = f"kafka://{harness.bootstrap}/{options.registertopic}"
        where = ("--url", url, "--deadletter", dead)
        again = _abs(
            "deadletters", "replay", *listed(*where), *where, "--topic", harness.topic, "--yes"
        )
        assert again == (0, "1 dead letters replayed\n")
        written = messages({"bootstrap.servers": harness.bootstrap}, harness.topic)
        assert {record.partition() for record in written} == {0, PARTITIONS}
        assert len({(record.key(), record.value()) for record in written}) == 1


def test_the_check_of_replayed_letters_sees_rows_that_are_written_as_bytes(
    kafka: KafkaService, registry: StandIn
) -> None:
    with planted((KafkaOptions, "written", property(lambda self: {}))):
        test_a_letter_of_a_topic_is_written_again_as_its_job_writes("keys", kafka, registry)


def test_letters_of_a_folder_are_listed_shown_replayed_and_audited(
    store: S3Service, prefix: str, tmp_path: Path
) -> None:
    store.start()
    server = {"endpoint": store.endpoint, "region": store.region}
    path = f"s3://{store.bucket}/{prefix}"
    with s3_buried.buried(path, server) as harness:
        case = Case(harness)
        case.run().epoch(0, rows(0, 10))
        case.close()

        def url(**more: str) -> str:
            return f"{harness.path}?{urlencode({**server, **more})}"

        where = ("--url", url(fileformat="json"), "--deadletter", harness.dead)
        ids = listed(*where)
        shown = json.loads(_abs("deadletters", "show", *ids, *where)[1])
        assert [json.loads(each["row"])["id"] for each in shown] == [2, 7]
        notes: Callable[[int], str | None] = lambda n: "a\0b" if is_poison(n) else None  # noqa: E731
        given = [{"id": n, "value": value, "note": notes(n)} for n, value in rows(0, 10)]
        more = ("--schema", "id BIGINT, value STRING, note STRING", "--deadletters", harness.dead)
        assert audited(tmp_path, given, url())[0] == 1
        code, printed = audited(tmp_path, given, url(), *more)
        assert code == 0, printed
        # The letter tells the job's format, JSON, which cannot hold the row.
        unnamed = ("--url", url(), "--deadletter", harness.dead)
        assert _abs("deadletters", "replay", *ids, *unnamed, "--yes")[0] == 1
        parquet = ("--url", url(fileFormat="parquet"), "--deadletter", harness.dead)
        other = f"{harness.path}-other?{urlencode({**server, 'fileformat': 'parquet'})}"
        moved = ("deadletters", "replay", ids[0], "--url", other, "--deadletter", harness.dead)
        elsewhere(str(harness.path), moved)
        assert listed(*where) == ids[1:]
        again = ("deadletters", "replay", *ids, *parquet, "--yes")
        assert _abs(*again) == (0, "1 dead letters replayed\n")
        assert _abs(*again) == (0, "0 dead letters replayed\n")
        assert listed(*where) == []


def buried_again(
    case: Case, written: Sequence[Row], empty: Callable[[], None], missing: Callable[[], int]
) -> None:
    """By restores.md: the job goes on without a word, the audit shows it, and a batch write mends it.

    Args:
        written: the rows of one epoch, of which some are refused.
        empty: takes the letters away.
        missing: how many rows the audit names.
    """
    with case:
        case.run().epoch(0, written)
        assert missing() == 0
        empty()
        case.run().epoch(1, [])
        lost = [row for row in written if is_poison(row[0])]
        assert missing() == len(lost)
        case.run(job_key(JOB, "letters-again")).epoch(0, lost)
        assert missing() == 0
        case.run().begin(2)


def _missing(printed: str) -> int:
    return int(json.loads(printed)["missing"])


def test_letters_of_a_topic_that_is_made_again_are_written_again(
    kafka: KafkaService, tmp_path: Path
) -> None:
    kafka.start()
    with kafka_buried.buried(kafka.bootstrap, Variant("2pc")) as harness:

        def empty() -> None:
            delete_topics(harness.options.kafka, [harness.dead])
            make_topic(harness.options.kafka, harness.dead)

        def missing() -> int:
            topic = f"kafka://{harness.bootstrap}/{harness.topic}"
            beside = ("--deadletters", harness.dead, "--json")
            return _missing(audited(tmp_path, [{"id": n} for n in range(10)], topic, *beside)[1])

        buried_again(Case(harness), [(n, json.dumps({"id": n})) for n in range(10)], empty, missing)


def test_letters_of_a_folder_that_is_emptied_are_written_again(
    store: S3Service, prefix: str, tmp_path: Path
) -> None:
    store.start()
    server = {"endpoint": store.endpoint, "region": store.region}
    with s3_buried.buried(f"s3://{store.bucket}/{prefix}", server) as harness:
        folder = harness.options.letters
        assert folder is not None
        objects = Objects(harness.options.bucket)

        def empty() -> None:
            objects.delete([found.key for found in objects.list(folder.folder)])

        def missing() -> int:
            url = f"{harness.path}?{urlencode(server)}"
            notes: Callable[[int], str | None] = lambda n: "a\0b" if is_poison(n) else None  # noqa: E731
            given = [{"id": n, "value": value, "note": notes(n)} for n, value in rows(0, 10)]
            schema = ("--schema", "id BIGINT, value STRING, note STRING")
            return _missing(
                audited(tmp_path, given, url, *schema, "--deadletters", harness.dead, "--json")[1]
            )

        buried_again(Case(harness), rows(0, 10), empty, missing)
