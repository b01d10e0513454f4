"""The Kafka sink with its write-ahead log in S3: the same segments, seen from every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import parse_qsl

import pytest

from abs_clients.s3.client import close_idle
from abs_clients.s3.objects import Objects
from abs_core.errors import CorruptionError, OptionError
from abs_core.model import HandleName
from abs_services import KafkaService, S3Service
from abs_sinks.s3 import S3Options
from abs_sinks.s3.segments import SEGMENTS, S3Segments
from abs_sinks.s3.uploads import Uploads
from abs_sinks.wal import segment_store
from abs_testing.case import Case, raises, rows
from abs_testing.check_segments import CHECKS, NewStore
from abs_testing.cuts import Cut, Halted
from tests.kit.kafka import Variant
from tests.kit.kafka_modes import RegisterHarness
from tests.sinks.s3.proxy import running

pytestmark = pytest.mark.services

PART = 5 << 20
LARGE = [(key, "x" * (PART // 16)) for key in range(100, 140)]
"""Rows of more than two parts."""


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


def test_an_upload_that_a_killed_task_left_is_listed_and_swept_and_a_live_one_is_not(
    kafka: KafkaService, wal: str
) -> None:
    kafka.start()
    harness = RegisterHarness(kafka.bootstrap, Variant("wal"), {"wal": f"{wal}&partsize={PART}"})
    case = Case(harness)
    killed = case.run().attempt(0)
    killed.write(*LARGE)  # and no more is heard of it
    run = case.run()
    raises(Halted, lambda: case.run(run=run.who.run, cut=Cut("abort")).coordinator.begin(0))
    doubts = {doubt.handle: doubt.detail for doubt in run.committer.in_doubt(None)}
    assert doubts[killed.task.handle].endswith("not sealed")
    live = run.attempt(0, 1).write(*LARGE)
    run.epoch(0, rows(0, 3))
    live_next = run.attempt(1, 1).write(*LARGE)
    run.sweep()
    assert open_uploads(wal) == [live_next.task.handle], "of the present generation only"
    share = live_next.pre_commit()
    live.writer.abort()
    run.commit(1, [share])
    case.finished(rows(0, 3), LARGE, when="after a task that was killed amid its upload")
    assert open_uploads(wal) == []
    case.close()
    harness.close()


def test_uploads_that_may_not_be_listed_are_a_warning_with_its_remedy(
    kafka: KafkaService, s3: S3Service, wal: str, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.start()
    with running(s3.endpoint) as proxy:
        proxy.denied = lambda request: request.call == "ListMultipartUploads"
        through = wal.replace(s3.endpoint, proxy.endpoint)
        harness = RegisterHarness(kafka.bootstrap, Variant("wal"), {"wal": through})
        case = Case(harness)
        case.run().epoch(0, rows(0, 3))
        case.run().epoch(1, rows(10, 3))
        case.finished(rows(0, 3), rows(10, 3), when="after epochs without that right")
        case.close()
        harness.close()
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert any("s3:ListBucketMultipartUploads" in text and "lifecycle" in text for text in told)


def open_uploads(wal: str) -> list[HandleName]:
    """Whose uploads are open in the log, as the server lists them."""
    path, _, query = wal.partition("?")
    options = S3Options.parse({**dict(parse_qsl(query)), "path": path})
    found = [SEGMENTS.handle_of(each.key) for each in Uploads(options).list(options.path.folder)]
    return [handle for handle in found if handle is not None]


def test_another_scheme_is_refused() -> None:
    with pytest.raises(OptionError, match="hdfs"):
        segment_store("hdfs://namenode/wal")
