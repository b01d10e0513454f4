"""The cell of each register is linearizable: histories of killed processes, checked by Porcupine.

Porcupine is a Go program, which the campaign builds; without Go these tests fail, and say so. What
``make test`` has needs no Go: that a history tells what was done.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from abs_chaos.faults import before
from abs_core.registers import FileRegister
from abs_services import KafkaService, S3Service
from abs_testing.case import within
from tests import sample
from tests.porcupine import history
from tests.porcupine.checker import check
from tests.porcupine.history import Call
from tests.porcupine.killing import Harmed, harmed
from tests.porcupine.planted import PLANTED
from tests.porcupine.workers import Forker, Served

SECONDS = 60.0
HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))


def check_linearizable(found: Harmed, folder: Path) -> None:
    """Porcupine finds an order; else its picture is kept beside the history."""
    picture = folder / "violation.html"
    verdict = check(history.write(found.calls, folder / "history.json"), picture)
    print(f"\n{found}\n{verdict.line}")
    assert verdict.kind == "ok", f"{verdict.line}; {picture} shows it"
    assert found.counts["kills"] > 5
    assert found.counts["pauses"] > 5
    assert any(call.end is None for call in found.calls)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


@pytest.mark.campaign
def test_a_cell_in_memory_is_linearizable(notes: Path, tmp_path: Path) -> None:
    with Served(tmp_path / "socket") as served:
        found = harmed(served.address, notes, seconds=SECONDS, seed=sample.seed())
    check_linearizable(found, tmp_path)


@pytest.mark.campaign
def test_a_cell_in_a_file_is_linearizable(notes: Path, tmp_path: Path) -> None:
    found = harmed(str(tmp_path / "register"), notes, seconds=SECONDS, seed=sample.seed())
    check_linearizable(found, tmp_path)


@pytest.mark.campaign
@pytest.mark.services
def test_a_cell_in_postgresql_is_linearizable(notes: Path, tmp_path: Path, database: str) -> None:
    with before(database) as relay:
        found = harmed(
            relay.address,
            notes,
            seconds=SECONDS,
            seed=sample.seed(),
            relay=relay,
            modules=("abs_sinks.postgres.register",),
        )
    check_linearizable(found, tmp_path)


@pytest.mark.campaign
@pytest.mark.services
def test_a_cell_in_kafka_is_linearizable(
    notes: Path, tmp_path: Path, kafka: KafkaService, topic: str
) -> None:
    with before(kafka.bootstrap) as relay:
        found = harmed(
            f"kafka://{relay.address}/{topic}",
            notes,
            seconds=SECONDS,
            seed=sample.seed(),
            relay=relay,
            modules=("abs_sinks.kafka.register.store",),
        )
    check_linearizable(found, tmp_path)


@pytest.mark.campaign
@pytest.mark.services
def test_a_cell_in_s3_is_linearizable(
    notes: Path, tmp_path: Path, store: S3Service, prefix: str
) -> None:
    with before(store.endpoint) as relay:
        found = harmed(
            f"s3://{store.bucket}/{prefix}?endpoint={relay.address}&region={store.region}",
            notes,
            seconds=SECONDS,
            seed=sample.seed(),
            relay=relay,
            modules=("abs_sinks.s3.register",),
        )
    check_linearizable(found, tmp_path)


@pytest.mark.campaign
@pytest.mark.parametrize("bug", PLANTED)
def test_a_register_with_a_planted_bug_is_found(bug: str, notes: Path, tmp_path: Path) -> None:
    address = f"planted:{bug}:{tmp_path / 'register'}"
    found = harmed(address, notes, seconds=5.0, seed=sample.seed())
    picture = tmp_path / "violation.html"
    verdict = check(history.write(found.calls, tmp_path / "history.json"), picture)
    print(f"\n{found}\n{verdict.line}")
    assert verdict.kind == "illegal"
    assert b"<svg" in picture.read_bytes()


@pytest.mark.campaign
@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_history_that_is_written_down_is_judged_right(path: Path, tmp_path: Path) -> None:
    """Those whose name begins with ``not`` have no order."""
    picture = tmp_path / "violation.html"
    illegal = path.name.startswith("not-")
    assert check(path, picture).kind == ("illegal" if illegal else "ok")
    assert picture.exists() == illegal


@pytest.mark.long
def test_a_history_tells_what_killed_processes_have_done(notes: Path, tmp_path: Path) -> None:
    register = tmp_path / "register"
    with Forker() as forker:
        for number in range(2):
            forker.fork(
                address=str(register),
                jobs=["job"],
                folder=str(notes),
                process=f"p{number}",
                seed=number,
                loses=False,
            )
        assert within(30, lambda: sum(call.done for call in _heard(notes)) > 10)
    history.last_load(FileRegister(register), ["job"], notes)
    *calls, last = history.read(notes)
    assert last.call == "load"
    assert last.start > max(call.end or 0 for call in calls)
    done = {call.version: call.value for call in calls if call.done}
    unheard = [call.value for call in calls if call.end is None]
    assert len(done) == sum(call.done for call in calls)
    assert last.value in (done.get(last.version), *unheard)
    assert all(call.end is None or call.start < call.end for call in calls)


def _heard(notes: Path) -> list[Call]:
    """What was noted until now; the last line of a file may be half of one."""
    lines = (line for path in notes.glob("*.jsonl") for line in path.read_text().splitlines(True))
    return [Call(**json.loads(line)) for line in lines if line.endswith("\n")]
