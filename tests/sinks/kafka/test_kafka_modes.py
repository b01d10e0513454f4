"""Protocols wal and idempotent when a broker is killed, a segment damaged or an answer late."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from abs_clients.kafka.attempts import side_topic
from abs_clients.kafka.cluster import close_clusters
from abs_core.contracts import Task
from abs_core.errors import (
    CorruptionError,
    NotPreparedError,
    OptionError,
    PreflightError,
    RefusedError,
    UnavailableError,
)
from abs_core.model import Severity
from abs_services import KafkaService
from abs_sinks.kafka import wal
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.side_topic import winners_topic
from abs_sinks.kafka.sink import KafkaSink
from abs_testing.case import Case, raises, rows
from tests.fault_proxy.kafka import Api, LossyBroker
from tests.kit.kafka import KEYED, Variant, make_topic
from tests.kit.kafka_modes import LogHarness, RegisterHarness, open_log, open_variant

pytestmark = pytest.mark.services

LEFT, RIGHT = rows(0, 3), rows(10, 3)

OpenLog = Callable[[], AbstractContextManager[LogHarness]]


@pytest.fixture
def open_wal(kafka: KafkaService) -> OpenLog:
    kafka.start()
    return partial(open_log, kafka.bootstrap, Variant("wal"))


@pytest.mark.campaign
@pytest.mark.parametrize("mode", ["wal", "idempotent"])
def test_a_broker_killed_between_pre_commit_and_commit_changes_nothing(
    kafka: KafkaService, mode: str
) -> None:
    kafka.start()  # the test before may have left it killed
    with open_variant(kafka.bootstrap, mode) as harness, Case(harness) as case:
        assert isinstance(harness, RegisterHarness)
        run = case.run()
        run.epoch(0, LEFT)
        shares = run.tasks(1, rows(20, 3), RIGHT)
        kafka.kill()
        kafka.start()
        _retried(lambda: run.commit(1, shares))
        case.finished(LEFT, rows(20, 3), RIGHT, when="after the broker was killed and came back")
        assert harness.hidden() == 0, "a transaction is left open"


def test_a_broker_killed_inside_the_commit_loses_and_doubles_nothing(
    open_wal: OpenLog, kafka: KafkaService
) -> None:
    def killed() -> None:
        kafka.kill()
        kafka.start()

    with open_wal() as harness, LossyBroker(kafka.bootstrap) as broker:
        harness.through(broker.bootstrap)
        with Case(harness) as case:
            run = case.run()
            shares = run.tasks(0, LEFT, RIGHT)
            broker.before(Api.END_TXN, killed)
            _retried(lambda: run.commit(0, shares))
            assert not broker.waits
            case.finished(LEFT, RIGHT, when="after the broker was killed with all records sent")
        assert harness.hidden() == 0, "a transaction is left open"
        close_clusters()


@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
def test_a_damaged_segment_is_named_and_nothing_is_visible(open_wal: OpenLog, damage: str) -> None:
    with open_wal() as harness, Case(harness) as case:
        run = case.run()
        shares = run.tasks(0, LEFT, RIGHT)
        path = sorted(harness.folder.iterdir())[1]
        _damage(path, damage)
        kind = NotPreparedError if damage == "missing" else CorruptionError
        error = raises(kind, lambda: run.commit(0, shares))
        assert error.handle == path.name.removesuffix(".arrows")
        assert harness.read() == []
        assert harness.hidden() == 0, "the aborted transaction is still open"
        case.run().epoch(0, LEFT, RIGHT)
        case.finished(LEFT, RIGHT, when="after the next run wrote the epoch again")


def test_records_that_take_too_long_for_one_transaction_are_refused_and_none_is_visible(
    open_wal: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_wal() as harness, Case(harness) as case:
        run = case.run()
        shares = run.tasks(0, LEFT, RIGHT)
        with monkeypatch.context() as patch:
            patch.setattr(wal, "ROOM", 0.0)
            error = raises(RefusedError, lambda: run.commit(0, shares))
        assert "kafka.transaction.timeout.ms" in str(error)
        assert harness.read() == []
        assert harness.hidden() == 0, "the transaction is left open"
        case.run().epoch(0, LEFT, RIGHT)
        case.finished(LEFT, RIGHT, when="after there was time enough")


def test_a_damaged_segment_is_not_decided(kafka: KafkaService) -> None:
    """Where the register is elsewhere a decision is for good, so it is looked at before."""
    kafka.start()
    with open_variant(kafka.bootstrap, "wal-foreign-register") as harness, Case(harness) as case:
        assert isinstance(harness, LogHarness)
        run = case.run()
        shares = run.tasks(0, LEFT)
        _damage(next(harness.folder.iterdir()), "flipped")
        raises(CorruptionError, lambda: run.commit(0, shares))
        assert run.state().open == ()
        case.run().epoch(0, LEFT)
        case.finished(LEFT, when="after the next run")


def test_an_epoch_is_there_whole_or_not_at_all(open_wal: OpenLog) -> None:
    """Offsets tell: all records of an epoch, of all partitions, end with the markers of one commit."""
    with open_wal() as harness, Case(harness) as case:
        run = case.run()
        run.epoch(0, rows(0, 100), rows(100, 100), rows(200, 100))
        case.finished(rows(0, 300), when="after an epoch of three tasks")
        assert harness.offsets_used() == 300 + 3, "one marker in each of three partitions"


def test_idempotent_is_refused_where_its_promise_cannot_be_kept(kafka: KafkaService) -> None:
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "protocol": "idempotent"}
    no_topic = KafkaOptions.parse(given)
    with pytest.raises(OptionError, match="one topic"):
        KafkaSink(no_topic, KEYED)
    with pytest.raises(OptionError, match="own cluster"):
        KafkaSink(KafkaOptions.parse({**given, "topic": "t"}), KEYED, co_commit=False)


def test_a_compacted_topic_is_refused_before_a_record_is_sent(kafka: KafkaService) -> None:
    kafka.start()
    topic = f"t-{secrets.token_hex(6)}"
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "protocol": "idempotent", "topic": topic}
    options = KafkaOptions.parse(given)
    make_topic(options.kafka, topic, 1, {"cleanup.policy": "compact"})
    (told,) = [
        f for f in KafkaSink(options, KEYED).preflight("job") if f.severity is Severity.ERROR
    ]
    assert "compacted" in told.what
    writer = KafkaSink(options, KEYED).writer(Task("0" * 16, "job", 1, 0, 0, "ab"))
    batch = pa.record_batch({"key": ["1"], "value": ["one"]}, schema=KEYED)
    with pytest.raises(PreflightError, match="compacted"):
        writer.write(batch)
    writer.abort()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"retention.ms": "1000"}, "retention.ms"),
        ({"cleanup.policy": "compact"}, "cleanup.policy"),
        ({"retention.bytes": "1000"}, "retention.bytes"),
    ],
)
def test_a_side_topic_that_loses_winners_first_is_refused(
    kafka: KafkaService, wrong: dict[str, str], said: str
) -> None:
    kafka.start()
    topic = f"t-{secrets.token_hex(6)}"
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "protocol": "idempotent", "topic": topic}
    options = KafkaOptions.parse(given)
    make_topic(options.kafka, topic, 1)
    make_topic(options.kafka, side_topic(topic), 1, {"retention.ms": "-1", **wrong})
    with pytest.raises(PreflightError, match=said):
        winners_topic(options, "job")


def test_preflight_says_that_another_job_has_written_the_topic(open_wal: OpenLog) -> None:
    with open_wal() as harness:
        sink = harness.new_sink()
        assert not [f for f in sink.preflight("job") if f.severity is Severity.ERROR]
        case = Case(harness)
        case.run("before").epoch(0, LEFT)
        told = [f.what for f in sink.preflight("after") if f.severity is Severity.WARNING]
        assert any("another job" in what and ": before." in what for what in told), told
        told = [f.what for f in sink.preflight("before") if f.severity is Severity.WARNING]
        assert not any("another job" in what for what in told), told
        case.close()


def _damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(data[:-10])
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def _retried(call: Callable[[], object], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            call()
        except UnavailableError:
            assert time.monotonic() < deadline
        else:
            return
