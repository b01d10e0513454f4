"""The archive of the broker's classes: made once, and nothing that a broker needs."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from abs_core.errors import UnavailableError
from abs_services.java import find_java
from abs_services.native import NativeKafka
from abs_services.native.kafka_jars import broker_jars
from tests.kit.kafka_classes import archive_flags, class_archive, make_class_archive


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("ABS_CACHE", str(folder))
    return folder


def test_who_asks_for_it_at_once_gets_one_and_it_is_used_from_then_on(cache: Path) -> None:
    made: list[Path] = []
    both_called = threading.Barrier(2, timeout=60)

    def dump(archive: Path) -> None:
        made.append(archive)
        archive.write_bytes(b"classes")

    def ask() -> None:
        both_called.wait()
        make_class_archive(dump)

    assert archive_flags(find_java()) == []
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    archive = class_archive(find_java())
    assert (len(made), archive.read_bytes()) == (1, b"classes")
    assert archive_flags(find_java()) == [f"-XX:SharedArchiveFile={archive}"]
    assert sorted(cache.iterdir()) == sorted([archive, cache / "kafka-classes.lock"])


def test_that_it_cannot_be_made_is_said_and_stops_nobody(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def dump(archive: Path) -> None:
        raise UnavailableError("no room", remedy="none")

    make_class_archive(dump)
    make_class_archive(lambda archive: None)
    assert len(caplog.records) == 2
    assert "no room" in caplog.text
    assert archive_flags(find_java()) == []


@pytest.mark.campaign
@pytest.mark.services
def test_a_broker_starts_where_the_archive_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = broker_jars(find_java())
    monkeypatch.setenv("ABS_CACHE", str(tmp_path / "cache"))
    shutil.copytree(jars, tmp_path / "cache" / jars.name)
    class_archive(find_java()).write_bytes(b"no classes")
    monkeypatch.setenv("ABS_KAFKA_JVM", *archive_flags(find_java()))
    with NativeKafka() as broker:
        assert broker.is_running
