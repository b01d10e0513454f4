"""The broker's jars are fetched once, whole or not at all, and what is missing is named."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from abs_core.errors import CorruptionError, UnavailableError
from abs_services.containers.engine import IMAGES
from abs_services.contracts import Kind
from abs_services.native.kafka_jars import KAFKA, SCALA, SUMS, broker_jars


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


Table = Callable[[dict[str, bytes]], Path]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table of these jars, as the one of the release."""

    def write(jars: dict[str, bytes]) -> Path:
        place = tmp_path / "jars.sha256"
        lines = [f"{hashlib.sha256(data).hexdigest()}  {name}" for name, data in jars.items()]
        place.write_text("\n".join(lines))
        return place

    return write


Fetches = Callable[..., Path]


@pytest.fixture
def fetches(tmp_path: Path) -> Fetches:
    """A Java whose Ivy brings these jars, one folder of them after another."""

    def java(*brought: dict[str, bytes]) -> Path:
        for number, jars in enumerate(brought):
            folder = tmp_path / "brought" / str(number)
            folder.mkdir(parents=True)
            for name, data in jars.items():
                (folder / name).write_bytes(data)
        left = tmp_path / "brought"
        return fake_java(tmp_path, f'mv "{left}/$(ls {left} | head -1)" jars')

    return java


BROKER = f"kafka_{SCALA}-{KAFKA}.jar"
GOOD = {BROKER: b"the broker", "log.jar": b"a log"}
WRONG = [
    {**GOOD, BROKER: b"another broker"},
    {BROKER: GOOD[BROKER]},
    {**GOOD, "more.jar": b"what nobody asked for"},
]


@pytest.mark.parametrize("wrong", WRONG, ids=["changed", "missing", "foreign"])
def test_a_jar_that_is_not_the_release_s_is_refused_after_its_fetch(
    cache: Path, table: Table, fetches: Fetches, wrong: dict[str, bytes]
) -> None:
    java = fetches(wrong, GOOD)
    with pytest.raises(CorruptionError, match="not the ones that this release"):
        broker_jars(java, table(GOOD))
    assert [path.name for path in cache.iterdir()] == ["kafka.lock"]
    assert content(broker_jars(java, table(GOOD))) == GOOD


@pytest.mark.parametrize("wrong", WRONG, ids=["changed", "missing", "foreign"])
def test_a_jar_in_the_cache_that_is_not_the_release_s_is_not_used(
    cache: Path, table: Table, fetches: Fetches, wrong: dict[str, bytes]
) -> None:
    folder = cache / f"kafka-{KAFKA}"
    folder.mkdir(parents=True)
    for name, data in wrong.items():
        (folder / name).write_bytes(data)
    java = fetches(GOOD)
    assert content(broker_jars(java, table(GOOD))) == GOOD
    assert content(broker_jars(java, table(GOOD))) == GOOD, "and it is not fetched again"


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_release_s_table_names_the_broker_and_its_jars() -> None:
    lines = [line.split() for line in SUMS.read_text().splitlines()]
    assert all(len(digest) == 64 and name.endswith(".jar") for digest, name in lines)
    assert f"kafka_{SCALA}-{KAFKA}.jar" in [name for _, name in lines]


@pytest.mark.parametrize("kind", IMAGES)
def test_the_public_image_is_of_a_version_that_does_not_change(kind: Kind) -> None:
    public = IMAGES[kind].public
    assert re.search(r":\d+\.\d+(\.\d+)?$|@sha256:[0-9a-f]{64}$", public), public


def test_starts_at_once_fetch_once(cache: Path, table: Table, fetches: Fetches) -> None:
    java = fetches(GOOD, GOOD)
    both_called = threading.Barrier(2, timeout=60)

    def start() -> None:
        both_called.wait()
        assert broker_jars(java, table(GOOD)) == cache / f"kafka-{KAFKA}"

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert [path.name for path in (cache.parent / "brought").iterdir()] == ["1"]


def test_a_fetch_that_fails_leaves_nothing_that_looks_fetched(cache: Path, tmp_path: Path) -> None:
    java = fake_java(tmp_path, "echo ':: UNRESOLVED DEPENDENCIES ::'; exit 1")
    with pytest.raises(UnavailableError, match="UNRESOLVED"):
        broker_jars(java)
    assert [path.name for path in cache.iterdir()] == ["kafka.lock"]


def test_ivy_that_says_it_succeeded_and_fetched_nothing_is_not_believed(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="could not fetch"):
        broker_jars(fake_java(tmp_path, "exit 0"))
