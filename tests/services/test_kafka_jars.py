"""The broker's jars are fetched once, whole or not at all, and what is missing is named."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from abs_core.errors import ConfigError, UnavailableError
from abs_services.native import kafka_jars
from abs_services.native.kafka_jars import KAFKA, broker_jars, find_java


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ABS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fake_java(folder: Path, script: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_starts_at_once_fetch_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[Path] = []
    both_called = threading.Barrier(2, timeout=10)

    def resolve(java: Path, scratch: Path) -> Path:
        fetched.append(scratch)
        (scratch / "jars").mkdir()
        return scratch / "jars"

    def start() -> None:
        both_called.wait()
        assert broker_jars(Path("java")) == cache / f"kafka-{KAFKA}"

    monkeypatch.setattr(kafka_jars, "_resolve", resolve)
    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(fetched) == 1


def test_a_fetch_that_fails_leaves_nothing_that_looks_fetched(cache: Path, tmp_path: Path) -> None:
    java = fake_java(tmp_path, "echo ':: UNRESOLVED DEPENDENCIES ::'; exit 1")
    with pytest.raises(UnavailableError, match="UNRESOLVED"):
        broker_jars(java)
    assert [path.name for path in cache.iterdir()] == ["kafka.lock"]


def test_ivy_that_says_it_succeeded_and_fetched_nothing_is_not_believed(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="could not fetch"):
        broker_jars(fake_java(tmp_path, "exit 0"))


def test_an_older_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="not Java 17"):
        find_java()


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=str(tmp_path)):
        find_java()
