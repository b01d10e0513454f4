"""The Kafka sink with its write-ahead log in S3: the same segments, seen from every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from abs_clients.s3.client import close_idle
from abs_clients.s3.objects import Objects
from abs_core.errors import CorruptionError, OptionError
from abs_core.testing.case import Case, raises, rows
from abs_core.testing.check_segments import CHECKS, NewStore
from abs_services import KafkaService, S3Service
from abs_sinks.s3.segments import SEGMENTS, S3Segments
from abs_sinks.wal import segment_store
from tests.kit.kafka import Variant
from tests.kit.kafka_modes import RegisterHarness

pytestmark = pytest.mark.services


@pytest.fixture
def wal(s3: S3Service, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of an empty log."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    close_idle()
    yield f"s3://{s3.bucket}/{prefix}?endpoint={s3.endpoint}&region={s3.region}"
    close_idle()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_s3_keeps_the_rule(check: Callable[[NewStore], None], wal: str) -> None:
    check(lambda: segment_store(wal))


def test_epochs_pass_through_s3_exactly_once(kafka: KafkaService, wal: str) -> None:
    kafka.start()
    harness = RegisterHarness(kafka.bootstrap, Variant("wal"), {"wal": wal})
    case = Case(harness)
    run = case.run()
    run.epoch(0, rows(0, 3), rows(10, 3))
    assert segment_store(wal).list(None) == []
    # A damaged object is named, and the next run writes the epoch again.
    shares = run.tasks(1, rows(20, 3))
    store = segment_store(wal)
    assert isinstance(store, S3Segments)
    name = store.list(None)[0].handle
    Objects(store._options.bucket).put(SEGMENTS.key(store._options, name), b"no segment")
    assert raises(CorruptionError, lambda: run.commit(1, shares)).handle == str(name)
    case.run().epoch(1, rows(20, 3))
    case.finished(rows(0, 3), rows(10, 3), rows(20, 3), when="after two epochs by way of S3")
    case.close()
    harness.close()


def test_another_scheme_is_refused() -> None:
    with pytest.raises(OptionError, match="hdfs"):
        segment_store("hdfs://namenode/wal")
