"""The archive of Spark's classes: made once, and nothing that a test needs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.spark import jvm


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
        jvm.make_class_archive(dump)

    assert jvm.environment() == {jvm.OPTIONS: jvm.QUICK}
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    archive = jvm.class_archive()
    assert (len(made), archive.read_bytes()) == (1, b"classes")
    assert jvm.environment() == {
        jvm.OPTIONS: f"{jvm.QUICK} -XX:SharedArchiveFile={archive}",
        jvm.HOME: str(archive.parent),
    }
    assert sorted(cache.iterdir()) == sorted([archive.parent, cache / "spark-classes.lock"])
    assert not list(archive.parent.rglob("pyspark.zip")), "nothing is compiled again and again"


def test_that_it_cannot_be_made_is_said_and_stops_nobody(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def dump(archive: Path) -> None:
        raise TimeoutError("it takes too long")

    jvm.make_class_archive(dump)
    jvm.make_class_archive(lambda archive: None)
    assert len(caplog.records) == 2
    assert "it takes too long" in caplog.text
    assert jvm.environment() == {jvm.OPTIONS: jvm.QUICK}
