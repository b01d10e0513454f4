"""Dead letters of Kafka: records that the topic refuses are in another one, under the same decision."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from confluent_kafka.cimpl import NewPartitions

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.topics import topic_facts
from abs_core.contracts import Task
from abs_core.crash import CrashPoint
from abs_core.errors import DataError, OptionError, RowError
from abs_core.model import Severity
from abs_services import KafkaService
from abs_sinks.deadletters import writer
from abs_sinks.deadletters.letter import schema_of, why_bad
from abs_sinks.deadletters.row import rows_of
from abs_sinks.kafka import KafkaSink
from abs_sinks.kafka.letters import letter_records
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.preflight import findings_of_letters
from abs_sinks.kafka.replay import KafkaLetters
from abs_sinks.kafka.sending import outside_transactions
from abs_sinks.kafka.twophase import TwoPhaseCommitter, TwoPhaseWriter
from abs_sinks.kafka.writer import RecordWriter
from abs_testing.case import Case, rows
from abs_testing.cuts import Halted
from tests import sample
from tests.kit.kafka import Variant, limit, open_topic
from tests.kit.kafka_reading import READ_SECONDS
from tests.planted import Bug
from tests.sinks.dead_letters import *  # noqa: F403 - the suite
from tests.sinks.dead_letters import Opener, Way, in_each
from tests.sinks.kafka.buried import NOWHERE, PLACED, Buried, buried

pytestmark = pytest.mark.services

TASK = Task("0123456789abcdef", "job", 1, 0, 0, "ab")

VARIANTS = [
    Variant("2pc"),
    Variant("2pc", own_register=False),
    Variant("2pc", own_register=False, producer="librdkafka"),
    Variant("wal"),
    Variant("wal", own_register=False),
    Variant("wal", producer="librdkafka"),
    Variant("idempotent"),
    Variant("idempotent", producer="librdkafka"),
]
CELLS = {variant.name: variant for variant in VARIANTS}
KILLS = dict.fromkeys(("2pc", "wal", "idempotent"), (CrashPoint.AFTER_PRE_COMMIT,))

pytest_generate_tests = in_each([Way(name, KILLS.get(name, ())) for name in CELLS])


@pytest.fixture(scope="module")
def bootstrap(kafka: KafkaService) -> str:
    kafka.start()
    return kafka.bootstrap


@pytest.fixture
def opener(bootstrap: str, name: str) -> Opener:
    return partial(buried, bootstrap, CELLS[name])


@pytest.fixture
def buries_at_once() -> Bug:
    def at_once(writer: RecordWriter, letters: pa.RecordBatch) -> None:
        topic = writer._options.letters
        assert topic is not None
        sender = outside_transactions(replace(writer._options, topic=topic), [])
        sender.send(replace(letter_records(letters, topic, 0), topics=None))
        sender.flush()
        writer._letters[writer.number].add(rows=-letters.num_rows, dead=-letters.num_rows)
        writer._rows -= letters.num_rows

    return lambda plant: plant(RecordWriter, "_bury", at_once)


@pytest.fixture
def drops_a_bad_row() -> Bug:
    return lambda plant: plant(writer, "why_bad", lambda bad: why_bad(bad)[1:])


def test_a_dead_letter_says_in_connects_words_where_it_is_from(bootstrap: str) -> None:
    with buried(bootstrap, CELLS["2pc"]) as harness, Case(harness) as case:
        case.run().epoch(4, rows(0, 3))
        (found,) = harness.headers()
        assert found["__connect.errors.connector.name"] == "job"
        assert found["__connect.errors.exception.class.name"] == "partition"
        assert "name a partition" in found["__connect.errors.exception.message"]
        (letter,) = KafkaLetters(harness.options).found()
        assert (letter["sink"], letter["epoch"], letter["key"]) == (
            *(harness.topic, 4, '{"key":"2"}'),
        )


def test_columns_left_out_are_not_shown_and_not_replayed_as_null(bootstrap: str) -> None:
    with buried(bootstrap, CELLS["wal"], deadlettercolumns=("KEY",)) as harness:
        case = Case(harness)
        case.run().epoch(0, rows(0, 3))
        kept = KafkaLetters(harness.options)
        (letter,) = kept.shown([letter["id"] for letter in kept.found()])
        assert json.loads(letter["row"]) == {"value": "v2", "partition": 99}
        with pytest.raises(DataError, match="does not show the columns key"):
            kept.replay([letter["id"]])
        assert len(kept.found()) == 1
        case.close()


KINDS: dict[str, dict[str, object]] = {
    "too-large": {"value": "x" * 1_100_000},
    "partition": {"partition": 99},
    "out-of-range": {"timestamp": -1},
    "key-missing": {"headers": [{"key": None, "value": b"v"}]},
    "topic": {"topic": "not-there"},
    "null": {"topic": None},
}
FULL = pa.schema(
    [
        ("value", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("topic", pa.string()),
    ]
)


@pytest.mark.usefixtures("soon_missing")
def test_each_kind_of_refusal_is_a_dead_letter_that_reads_back(bootstrap: str) -> None:
    with buried(bootstrap, CELLS["2pc"], topic=None) as harness:
        limit(harness.options.kafka, harness.dead, "10000000")
        settings = harness.options.kafka
        pairs = {**dict(settings.pairs), "message.max.bytes": "10000000"}
        roomy = replace(settings, pairs=tuple(sorted(pairs.items())))
        options = replace(harness.options, kafka=roomy)
        row: dict[str, object] = dict.fromkeys(FULL.names)
        row |= {"value": "v", "topic": harness.topic}
        bad = [{**row, **changed} for changed in KINDS.values()]
        given = pa.RecordBatch.from_pylist([row, *bad, row], FULL)
        sink = KafkaSink(options, FULL)
        writer = sink.writer(TASK)
        writer.write(given)
        made = writer.pre_commit()
        assert made is not None
        sink.committer().commit([made])
        sink.close()
        assert len(harness.records()) == 2
        kept = KafkaLetters(options)
        letters = kept.shown([each["id"] for each in kept.found()])
        found = {
            each["code"]: rows_of([each["row"]], schema_of(each["schema"])).to_pylist()
            for each in letters
        }
        assert len(letters) == len(KINDS)
        assert found == {
            kind: given.slice(number, 1).to_pylist() for number, kind in enumerate(KINDS, 1)
        }


def test_a_dead_letter_that_its_topic_refuses_stops_the_query(bootstrap: str) -> None:
    with buried(bootstrap, CELLS["2pc"]) as harness:
        limit(harness.options.kafka, harness.dead, "300")
        topic_facts(harness.options.kafka, [harness.dead], again=True)
        case = Case(harness)
        with pytest.raises(RowError, match="dead letter cannot be written") as caught:
            case.run().epoch(0, rows(0, 3))
        assert harness.dead in str(caught.value)
        case.hides_all("after a dead letter that was too large")
        case.close()


def test_without_the_option_the_message_names_it(bootstrap: str) -> None:
    with open_topic(bootstrap, Variant("2pc")) as harness:
        sink = KafkaSink(harness.options, PLACED)
        writer = sink.writer(TASK)
        with pytest.raises(RowError, match="partition") as caught:
            writer.write(
                pa.RecordBatch.from_pylist([{"key": "a", "value": "b", "partition": 99}], PLACED)
            )
        writer.abort()
        sink.close()
        assert "name a topic in the option deadletter" in caught.value.remedy


@pytest.mark.usefixtures("soon_missing")
def test_a_topic_that_could_lose_letters_is_refused_at_the_start(bootstrap: str) -> None:
    with buried(bootstrap, CELLS["2pc"]) as harness:
        assert [
            f for f in findings_of_letters(harness.options) if f.severity is Severity.ERROR
        ] == []
        limit(harness.options.kafka, harness.dead, "compact", "cleanup.policy")
        *_, compacted = findings_of_letters(harness.options)
        assert compacted.severity is Severity.ERROR
        (missing,) = findings_of_letters(replace(harness.options, deadletter="not-there"))
        assert "does not exist" in missing.what


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"protocol": "idempotent", "deadletter": "sink:d"},
            "gives no dead letters to another sink",
        ),
        ({"deadletter": "t"}, "is that of the rows"),
        ({"deadletter": "abs-register"}, "is that of the rows or of the registers"),
        ({"deadlettermax": "0.5"}, "no meaning without deadletter"),
    ],
)
def test_options_that_cannot_be_kept_are_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        KafkaOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", **given})


@sample.cases(1)
def test_replayed_letters_are_written_and_marked_once(bootstrap: str, name: str) -> None:
    with buried(bootstrap, CELLS[name]) as harness, Case(harness) as case:
        case.run().epoch(0, rows(0, 10))
        kept = KafkaLetters(harness.options)
        ids = [letter["id"] for letter in kept.found()]
        with pytest.raises(RowError, match="name a partition"):
            kept.replay(ids)
        assert [letter["replayed"] for letter in kept.shown(ids)] == [None, None]
        add_partitions(harness)
        assert kept.replay(ids[:1]) == 1
        assert kept.replay(ids) == 1
        assert kept.replay(ids) == 0
        assert kept.found() == []
        assert len(kept.found(replayed=True)) == 2
        assert len(harness.written_to(NOWHERE)) == 2


@pytest.mark.parametrize("point", ["commit", "pre_commit"])
def test_a_replay_that_dies_is_finished_or_forgotten_by_the_next(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    with buried(bootstrap, CELLS["2pc"]) as harness, Case(harness) as case:
        case.run().epoch(0, rows(0, 10))
        add_partitions(harness)
        kept = KafkaLetters(harness.options)
        ids = [letter["id"] for letter in kept.found()]

        def dies(*_: object) -> None:
            raise Halted

        with monkeypatch.context() as planted:
            where = TwoPhaseCommitter if point == "commit" else TwoPhaseWriter
            planted.setattr(where, point, dies)
            with pytest.raises(Halted):
                kept.replay(ids)
        # What was decided is committed by the next replay, and is not written again.
        assert kept.replay(ids) == (0 if point == "commit" else 2)
        assert len(harness.written_to(NOWHERE)) == 2
        assert kept.found() == []


def add_partitions(harness: Buried) -> None:
    admin = cluster(harness.options.kafka).admin.opened()
    for answer in admin.create_partitions([NewPartitions(harness.topic, NOWHERE + 1)]).values():
        answer.result(READ_SECONDS)
