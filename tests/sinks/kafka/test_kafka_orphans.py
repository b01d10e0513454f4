"""What a killed worker has left open is aborted by the next one, and never what may be decided."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import multiprocessing
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pytest

from abs_clients.kafka.cluster import close_clusters
from abs_clients.kafka.transactions import State
from abs_core.contracts import Task
from abs_core.model import HandleName
from abs_services import KafkaService
from abs_sinks.kafka.open_transaction import id_name
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.orphans import TIDIED, Claim, end_orphans
from abs_sinks.kafka.producer_pool import ProducerPool
from abs_sinks.kafka.twophase import TwoPhaseWriter
from abs_testing.case import within
from tests.kit.kafka import TopicHarness, Variant, open_topic

REGISTER = "0123456789abcdef"
TASK = Task(REGISTER, "job", 1, 3, 0, "0123456789ab", frontier=2)
NEXT = replace(TASK, epoch=4, frontier=3)
SCHEMA = pa.schema([("value", pa.string())])
SECONDS = 60.0


def _claim(folder: Path, incarnation: str, generation: int = 1) -> Claim:
    return Claim(REGISTER, "job", generation, incarnation, folder)


def _seen(folder: Path, task: Task, generation: int = 1) -> list[list[HandleName]]:
    """By a worker that comes next."""
    return list(_claim(folder, "ff", generation).orphaned(task))


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name != TIDIED]


def test_old_files_of_dead_processes_are_deleted_and_looked_for_once_an_hour(
    tmp_path: Path,
) -> None:
    living = _claim(tmp_path, "aa")
    living.extend(3, 1)
    (of_living,) = _files(tmp_path)
    os.utime(of_living, (0, 0))

    def left_by(incarnation: str) -> Path:
        dead = _claim(tmp_path, incarnation)
        dead.extend(3, 1)
        dead.release()
        (path,) = tmp_path.glob(f"*-{incarnation}")
        os.utime(path, (0, 0))
        return path

    first = left_by("bb")
    assert first.exists(), "its folder was looked through when the first one came"
    os.utime(tmp_path / TIDIED, (0, 0))
    second = left_by("cc")
    assert not first.exists()
    assert second.exists()
    assert of_living.exists(), "its process may have a transaction open"
    living.release()


def test_a_process_that_lives_keeps_its_ids_whatever_is_finished(tmp_path: Path) -> None:
    mine = _claim(tmp_path, "aa")
    mine.extend(3, 2)
    assert _seen(tmp_path, NEXT) == []
    mine.release()
    assert len(_seen(tmp_path, NEXT)) == 1


def test_what_may_still_be_decided_is_left_alone(tmp_path: Path) -> None:
    dead = _claim(tmp_path, "aa")
    dead.extend(3, 2)
    dead.release()
    assert _seen(tmp_path, TASK) == [], "another attempt of the same epoch"
    assert _seen(tmp_path, replace(NEXT, frontier=None)) == []
    assert _seen(tmp_path, replace(NEXT, frontier=2, abandoned=(3,))) == []
    assert _seen(tmp_path, NEXT) == [
        [id_name(REGISTER, "job", 1, 0, "aa"), id_name(REGISTER, "job", 1, 1, "aa")]
    ]


def test_what_a_process_has_left_is_given_once(tmp_path: Path) -> None:
    dead = _claim(tmp_path, "aa")
    dead.extend(3, 1)
    dead.release()
    first = _claim(tmp_path, "bb").orphaned(NEXT)
    assert len(next(first)) == 1
    assert _seen(tmp_path, NEXT) == [], "somebody is at it"
    assert list(first) == []
    assert _seen(tmp_path, NEXT) == []
    assert _files(tmp_path) == []


def test_an_epoch_never_goes_back_and_ids_never_get_fewer(tmp_path: Path) -> None:
    dead = _claim(tmp_path, "aa")
    dead.extend(3, 2)
    dead.extend(2, 3)
    dead.release()
    assert _seen(tmp_path, replace(NEXT, frontier=2)) == []
    (left,) = _seen(tmp_path, NEXT)
    assert len(left) == 3


def test_a_note_that_cannot_be_written_is_not_told_by_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = _claim(tmp_path, "aa")
    dead.extend(3, 2)
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", _fails)
        dead.extend(4, 2)
    dead.release()
    assert _seen(tmp_path, NEXT) == [], "it was writing epoch 4, which may be decided"


def test_a_folder_that_knows_no_locks_costs_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", _fails)
    mine = _claim(tmp_path, "aa")
    mine.extend(3, 1)
    assert _open_below(tmp_path) == []
    mine.extend(4, 1)
    assert _open_below(tmp_path) == []


def _open_below(folder: Path) -> list[Path]:
    """The files of the folder that this process has open; others come and go beside the test."""
    opened = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile, as the listing's own is
            opened.append(descriptor.readlink())
    return [path for path in opened if path.is_relative_to(folder)]


def _fails(*_: object) -> int:
    raise OSError(errno.ENOSPC, "there is no room")


@pytest.mark.parametrize("content", [b"", b"{", b'{"epoch": 3}', b'{"epoch": "x", "made": 1}'])
def test_what_cannot_be_read_is_left_to_its_timeout(tmp_path: Path, content: bytes) -> None:
    dead = _claim(tmp_path, "aa")
    dead.extend(3, 1)
    dead.release()
    (file,) = _files(tmp_path)
    file.write_bytes(content)
    assert _seen(tmp_path, NEXT) == []
    assert file.exists()


def test_other_jobs_and_newer_runs_are_not_touched_and_older_ones_are_the_sweeps(
    tmp_path: Path,
) -> None:
    for claim in (
        Claim(REGISTER, "other", 1, "aa", tmp_path),
        _claim(tmp_path, "bb", 1),
        _claim(tmp_path, "cc", 2),
        _claim(tmp_path, "dd", 3),
    ):
        claim.extend(3, 1)
        claim.release()
    assert [left[0].attempt for left in _seen(tmp_path, replace(NEXT, generation=2), 2)] == ["cc"]
    kept = sorted(path.name.split("-")[2] for path in _files(tmp_path))
    assert kept == ["aa", "dd"]


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    mine = _claim(folder, "aa")
    mine.extend(3, 1)
    assert list(folder.iterdir()) == []
    assert _seen(folder, NEXT) == []


@pytest.fixture
def harness(kafka: KafkaService, claims: Path) -> Iterator[TopicHarness]:
    kafka.start()
    with open_topic(kafka.bootstrap, Variant("2pc")) as harness:
        yield harness
    close_clusters()


@pytest.fixture
def claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


@pytest.mark.services
@pytest.mark.parametrize("prepared", [False, True], ids=["writing", "prepared"])
def test_the_transaction_of_a_killed_worker_ends_when_its_epoch_is_over_and_not_before(
    harness: TopicHarness, prepared: bool
) -> None:
    _killed(harness.options, prepared=prepared)
    pool = ProducerPool(harness.options, REGISTER, "job", 1)
    pool.prepared(pool.take(TASK))
    assert not within(2.0, lambda: not _open(harness)), "its epoch may be decided yet"
    pool.take(NEXT)
    assert within(SECONDS, lambda: not _open(harness))
    assert harness.hidden() == 0, "no reader waits at what it had written"
    pool.close()


@pytest.mark.services
def test_a_broker_that_is_away_is_no_error_to_who_looks_for_orphans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = _claim(tmp_path, "aa")
    dead.extend(3, 1)
    dead.release()
    monkeypatch.setattr("abs_clients.kafka.timeouts.REQUEST_SECONDS", 1.0)
    nowhere = KafkaOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})
    end_orphans(nowhere, _claim(tmp_path, "bb"), NEXT)
    assert len(_seen(tmp_path, NEXT)) == 1, "the next one tries again"


def _open(harness: TopicHarness) -> dict[str, State]:
    return harness.open_ids((State.ONGOING,))


def _killed(options: KafkaOptions, *, prepared: bool) -> None:
    """A worker writes for TASK, and is killed with its transaction open."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=_work, args=(options, prepared, theirs))
    worker.start()
    assert ours.poll(SECONDS), "the worker has written"
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()


def _work(options: KafkaOptions, prepared: bool, done: Connection) -> None:
    pool = ProducerPool(options, REGISTER, "job", 1)
    writer = TwoPhaseWriter(options, SCHEMA, replace(TASK, partition=1), pool)
    writer.write(pa.record_batch({"value": ["a", "b", "c"]}, schema=SCHEMA))
    assert writer._sender is not None
    writer._sender.flush()
    if prepared:
        writer.pre_commit()
    done.send("written")
    signal.pause()
