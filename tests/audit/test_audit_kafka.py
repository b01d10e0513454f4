"""A topic is audited as read_committed shows it, to its end, by a client of another family."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka.codec import has_lz4

from abs_audit import Files, Report, audit, relation
from abs_audit.kafka import KafkaTopic
from abs_clients.kafka.cluster import close_clusters
from abs_core.errors import ConfigError, DataError, OptionError, UnavailableError
from abs_services import KafkaService
from abs_testing.case import Case, rows
from tests.audit.conftest import BY_ID
from tests.kit.kafka_modes import AttemptHarness, open_attempts
from tests.kit.kafka_reading import settle

pytestmark = pytest.mark.services

ROWS = [{"id": n, "name": f"n{n}", "amount": n / 8} for n in range(500)]
PARTITIONS = 3


@pytest.fixture
def audited(kafka: KafkaService, topic: str) -> str:
    """A topic with partitions; its URL."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    return f"kafka://{kafka.bootstrap}/{topic}"


@contextmanager
def _transaction(kafka: KafkaService, topic: str, rows: Sequence[Any]) -> Iterator[Producer]:
    """Rows in a transaction that the test ends, or leaves open."""
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"audit-{topic}", "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for row in rows:
        producer.produce(topic, json.dumps(row).encode(), partition=row["id"] % PARTITIONS)
    producer.flush(30)
    yield producer


def _write(kafka: KafkaService, url: str, rows: Sequence[Any], *, commit: bool = True) -> None:
    with _transaction(kafka, url.rpartition("/")[2], rows) as producer:
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    settle(kafka.bootstrap)


def _tombstone(kafka: KafkaService, url: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(url.rpartition("/")[2], None, key=b"gone")
    assert producer.flush(30) == 0


def _audit(tmp_path: Path, url: str) -> Report:
    expected = tmp_path / "expected.jsonl"
    expected.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return audit(Files((str(expected),)), relation([url]), BY_ID)


def test_a_topic_with_exactly_the_records_is_clean(
    kafka: KafkaService, audited: str, tmp_path: Path
) -> None:
    _write(kafka, audited, ROWS[:200])
    _write(kafka, audited, ROWS[:100], commit=False)
    _write(kafka, audited, ROWS[200:])
    report = _audit(tmp_path, audited)
    assert report.clean, report.reasons
    assert report.differences.actual == len(ROWS)


def test_missing_doubled_changed_and_foreign_records_are_told_apart(
    kafka: KafkaService, audited: str, tmp_path: Path
) -> None:
    changed = {**ROWS[7], "amount": 0.1}
    foreign = {**ROWS[0], "id": 9999}
    _write(kafka, audited, [*ROWS[:7], changed, *ROWS[8:490], ROWS[20], ROWS[21], foreign])
    figures = _audit(tmp_path, audited).differences.figures()
    assert [figures[n] for n in ("missing", "duplicate", "unexpected", "corrupted")] == [
        10,
        2,
        1,
        1,
    ]


def test_an_open_transaction_is_in_doubt(kafka: KafkaService, audited: str, tmp_path: Path) -> None:
    _write(kafka, audited, ROWS)
    with _transaction(kafka, audited.rpartition("/")[2], ROWS[:1]) as producer:
        report = _audit(tmp_path, audited)
        assert report.differences.none
        assert not report.clean
        assert report.left_behind is not None
        assert "an open transaction" in report.left_behind.pending[0].what
        producer.abort_transaction(30)
    settle(kafka.bootstrap)
    assert _audit(tmp_path, audited).clean


def test_raw_values_and_keys_are_compared_as_bytes(kafka: KafkaService, audited: str) -> None:
    _write(kafka, audited, ROWS[:50])
    _tombstone(kafka, audited)
    left, right = relation([f"{audited}?value=raw"]), relation([f"{audited}?value=raw"])
    report = audit(left, right)
    assert report.clean
    assert report.differences.actual == 51, "a tombstone counts"


JOB, ONE, TWO = "copies", rows(0, 9), rows(100, 9)
"""So many that each partition has some of each."""


@pytest.fixture
def attempts(kafka: KafkaService) -> Iterator[AttemptHarness]:
    with open_attempts(kafka.bootstrap) as harness:
        yield harness
    close_clusters()


def test_of_attempts_the_winners_are_audited_and_what_is_not_decided_is_in_doubt(
    kafka: KafkaService, attempts: AttemptHarness, tmp_path: Path
) -> None:
    case = Case(attempts)
    job = case.run(JOB)
    loser = job.attempt(0).write(*ONE)
    loser.pre_commit()
    job.epoch(0, ONE)
    url = f"kafka://{kafka.bootstrap}/{attempts.topic}"
    expected = tmp_path / "expected.parquet"
    table = {"key": [b"%d" % n for n, _ in ONE], "value": [text.encode() for _, text in ONE]}
    pq.write_table(pa.table(table), expected)

    def audited(more: str) -> Report:
        settle(kafka.bootstrap)
        return audit(Files((str(expected),)), relation([f"{url}?value=raw{more}"]))

    with pytest.raises(OptionError, match="winners=true"):
        audited("")
    report = audited("&winners=true")
    assert report.clean, report.reasons
    assert audited("&winners=false").differences.figures()["duplicate"] == len(ONE)

    undecided = job.attempt(1).write(*TWO)
    undecided.pre_commit()
    report = audited("&winners=true")
    assert report.differences.none
    assert not report.clean
    assert report.left_behind is not None
    assert f":{JOB}:" in report.left_behind.pending[0].what
    assert "not decided" in report.left_behind.pending[0].what
    case.close()


def test_a_topic_without_a_record_misses_them_all(
    kafka: KafkaService, audited: str, tmp_path: Path
) -> None:
    differences = _audit(tmp_path, audited).differences
    assert (differences.missing, differences.actual) == (len(ROWS), 0)
    _write(kafka, audited, ROWS[:7])
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    differences = audit(Files((str(empty),)), relation([audited]), BY_ID).differences
    assert (differences.unexpected, differences.expected) == (7, 0)


def test_a_topic_that_the_asked_broker_does_not_know_yet_is_waited_for(
    kafka: KafkaService, topic: str, tmp_path: Path
) -> None:
    def make() -> None:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)

    making = threading.Timer(1.0, make)
    making.start()
    differences = _audit(tmp_path, f"kafka://{kafka.bootstrap}/{topic}").differences
    making.join()
    assert (differences.missing, differences.actual) == (len(ROWS), 0)


def test_what_cannot_be_audited_is_a_clear_error(
    kafka: KafkaService, audited: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="There is no topic"):
        _audit(tmp_path, f"{audited}-other")
    _tombstone(kafka, audited)
    with pytest.raises(DataError, match="tombstone"):
        _audit(tmp_path, audited)


def test_a_codec_without_its_library_is_told_as_that(
    kafka: KafkaService, audited: str, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": "lz4"})
    for row in ROWS:
        producer.produce(audited.rpartition("/")[2], json.dumps(row), partition=0)
    assert producer.flush(30) == 0
    if has_lz4():
        assert _audit(tmp_path, audited).clean
    else:
        with pytest.raises(ConfigError, match="lz4"):
            _audit(tmp_path, audited)


def test_brokers_that_cannot_be_reached_are_told_and_leave_no_thread_behind() -> None:
    nobody = KafkaTopic("127.0.0.1:1", "t", settings={"bootstrap_timeout_ms": 300})
    before = set(threading.enumerate())
    with duckdb.connect() as connection, pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
        nobody.columns(connection)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(
    "url",
    [
        "kafka://h:1",
        "kafka:///t",
        "kafka://h:1/t?value=xml",
        "kafka://u:secret@h:1/t",
        "kafka://h:1/t?winners=maybe",
        "kafka://h:1/t?winer=secret",
    ],
)
def test_a_url_that_names_no_topic_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(OptionError) as refused:
        relation([url])
    assert "secret" not in str(refused.value)
