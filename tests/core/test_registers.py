"""Registers keep their contract; the file register also when its writers are killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from abs_core import registers
from abs_core.contracts import Conflict, RegisterStore, Stored
from abs_core.errors import CorruptionError, RefusedError, UnavailableError
from abs_core.model import JobState
from abs_core.registers import FileRegister, MemoryRegister
from abs_testing.check_register import (
    CHECKS,
    INVENTORY_CHECKS,
    NewStore,
    an_old_answer_lets_no_change_through,
    check_register,
)
from abs_testing.fakes.target import FakeRegister, FakeTarget

STATE = JobState("0" * 16, "job", "target", "lineage", 1, "run")
KILLER = Path(__file__).with_name("file_register_killer.py")


@pytest.fixture(params=["memory", "file", "fake"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewStore]:
    memory = MemoryRegister()
    targets: list[FakeTarget] = []

    def fake() -> FakeRegister:
        targets.append(FakeTarget(tmp_path / "fake.sqlite"))
        return FakeRegister(targets[-1])

    stores: dict[str, NewStore] = {
        "memory": lambda: memory,
        "file": lambda: FileRegister(tmp_path / "a" / "register"),
        "fake": fake,
    }
    yield stores[request.param]
    for target in targets:
        target.close()


@pytest.mark.parametrize("check", [*CHECKS, *INVENTORY_CHECKS], ids=lambda check: check.__name__)
def test_a_register_keeps_the_rule(check: Callable[[NewStore], None], new_store: NewStore) -> None:
    check(new_store)


def test_check_register_runs_every_rule(tmp_path: Path) -> None:
    checked = check_register(lambda: FileRegister(tmp_path))
    assert len(checked) == len(CHECKS) + len(INVENTORY_CHECKS)


class _Careless(RegisterStore):
    """Broken registers, one way each."""

    def __init__(self, broken: str) -> None:
        self.right = MemoryRegister()
        self.broken = broken

    def load(self, job: str) -> Stored | None:
        return self.right.load("one" if self.broken == "one cell" else job)

    def compare_and_set(
        self, job: str, expected: str | None, state: JobState, deadline: float | None = None
    ) -> str | Conflict:
        if self.broken == "one cell":
            job = "one"
        stored = self.right.load(job)
        present = None if stored is None else stored.version
        if self.broken == "never compares":
            expected = present
        if self.broken == "creates always" and expected is None:
            expected = present
        if self.broken == "forgets" and (present or "").startswith("2.") and expected == present:
            return "3"
        return self.right.compare_and_set(job, expected, state, deadline)


@pytest.mark.parametrize("broken", ["one cell", "never compares", "creates always", "forgets"])
def test_check_register_finds_a_register_that(broken: str) -> None:
    careless: RegisterStore = _Careless(broken)
    with pytest.raises(AssertionError):
        check_register(lambda: careless)


class _ListsNothing(MemoryRegister):
    def jobs(self) -> Sequence[Stored]:
        return []


class _IsItsOwnNeighbour(MemoryRegister):
    def others_on(self, target: str, job: str) -> Sequence[str]:
        return sorted(s.state.job for s in self.jobs() if s.state.target == target)


class _RetiresWhatIsDecided(MemoryRegister):
    def retire(self, job: str) -> bool:
        with self._lock:
            return self._cells.pop(job, None) is not None


class _CountsFromOneAgain(MemoryRegister):
    """A version says which change of the cell it is, and not of which cell."""

    def load(self, job: str) -> Stored | None:
        stored = super().load(job)
        return None if stored is None else replace(stored, version=stored.version.split(".")[0])

    def compare_and_set(
        self, job: str, expected: str | None, state: JobState, deadline: float | None = None
    ) -> str | Conflict:
        stored = super().load(job)
        if stored is not None and expected == stored.version.split(".")[0]:
            expected = stored.version
        done = super().compare_and_set(job, expected, state, deadline)
        return done if isinstance(done, Conflict) else done.split(".")[0]


class _LiesNowhere(MemoryRegister):
    def place(self, job: str) -> str:
        return ""


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (_ListsNothing, "every_job_is_listed_by_name"),
        (_IsItsOwnNeighbour, "others_on_a_target_are_told_and_tokens_are_one_job"),
        (_RetiresWhatIsDecided, "a_job_with_an_open_decision_is_not_retired"),
        (_CountsFromOneAgain, "a_retired_job_is_gone_and_so_are_its_versions"),
        (_LiesNowhere, "a_store_says_where_a_cell_lies"),
    ],
)
def test_check_register_finds_an_inventory_that(broken: type[MemoryRegister], rule: str) -> None:
    store = broken()
    with pytest.raises(AssertionError, match=rule):
        check_register(lambda: store)


class _Replaced(MemoryRegister):
    """Its server has a successor, and answers reads for it with what it knows."""

    known: Stored | None = None

    def old_answers(self, job: str) -> AbstractContextManager[None]:
        return self._answering(self.load(job))

    @contextmanager
    def _answering(self, known: Stored | None) -> Iterator[None]:
        self.known = known
        yield
        self.known = None

    def load(self, job: str) -> Stored | None:
        return self.known or super().load(job)


class _DecidesByWhatItReads(_Replaced):
    """As Kafka's register did."""

    def compare_and_set(
        self, job: str, expected: str | None, state: JobState, deadline: float | None = None
    ) -> str | Conflict:
        read, present = self.load(job), super(_Replaced, self).load(job)
        if (None if read is None else read.version) != expected:
            return Conflict()
        return super().compare_and_set(
            job, None if present is None else present.version, state, deadline
        )


def test_a_register_that_is_asked_once_is_misled_by_no_old_answer() -> None:
    store = _Replaced()
    an_old_answer_lets_no_change_through(lambda: store, store.old_answers)


def test_a_register_that_decides_by_an_old_answer_is_found() -> None:
    store = _DecidesByWhatItReads()
    with pytest.raises(AssertionError, match="an old answer has let an old version in"):
        an_old_answer_lets_no_change_through(lambda: store, store.old_answers)


@pytest.mark.parametrize("what", ["count", "kill"])
def test_a_file_register_survives_many_processes_and_sigkill(what: str, tmp_path: Path) -> None:
    killer = subprocess.run(
        [sys.executable, str(KILLER), what, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert killer.returncode == 0, killer.stderr


def test_a_temporary_file_left_by_a_crash_is_not_the_register(tmp_path: Path) -> None:
    store = FileRegister(tmp_path)
    (tmp_path / "job.json.tmp").write_text("half of a sta")
    assert store.load("job") is None
    first = store.compare_and_set("job", None, STATE)
    (tmp_path / "job.json.tmp").write_text("half of a sta")
    assert FileRegister(tmp_path).load("job") is not None
    assert not isinstance(first, Conflict)
    assert not isinstance(store.compare_and_set("job", first, STATE), Conflict)


def test_a_version_of_a_deleted_register_is_never_met_again(tmp_path: Path) -> None:
    store = FileRegister(tmp_path)
    old = store.compare_and_set("job", None, STATE)
    assert not isinstance(old, Conflict)
    (tmp_path / "job.json").unlink()
    anew = replace(STATE, register="f" * 16)
    store.compare_and_set("job", None, anew)
    assert isinstance(store.compare_and_set("job", old, STATE), Conflict)
    stored = store.load("job")
    assert stored is not None
    assert stored.state == anew


DAMAGED = [
    b"",
    b"{",
    b"\xff\xfe",
    b"[]",
    b"null",
    b'{"cell": 1}',
    b'{"cell": "x", "state": "{}"}',
    b'{"cell": 1, "state": "{}"}',
    b'{"cell": 1, "state": null}',
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_a_corruption_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_bytes(content)
    with pytest.raises(CorruptionError, match=r"job\.json"):
        FileRegister(tmp_path).load("job")
    with pytest.raises(CorruptionError):
        FileRegister(tmp_path).compare_and_set("job", None, STATE)
    assert (tmp_path / "job.json").read_bytes() == content


def test_a_file_that_is_too_large_for_a_register_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registers, "MAX_CELL_BYTES", 5)
    (tmp_path / "job.json").write_bytes(b"123456")
    with pytest.raises(CorruptionError, match="has 6 bytes; a register has 5 at most"):
        FileRegister(tmp_path).load("job")


def test_a_register_file_under_another_jobs_name_is_refused(tmp_path: Path) -> None:
    FileRegister(tmp_path).compare_and_set("job", None, STATE)
    (tmp_path / "job.json").rename(tmp_path / "other.json")
    with pytest.raises(CorruptionError, match="belongs to job 'job'"):
        FileRegister(tmp_path).load("other")


def test_a_folder_that_cannot_be_used_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises((UnavailableError, RefusedError)):
        FileRegister(tmp_path / "file" / "register").compare_and_set("job", None, STATE)


def test_a_folder_that_is_not_there_holds_no_job_and_is_not_made_by_looking(tmp_path: Path) -> None:
    register = FileRegister(tmp_path / "register")
    assert register.load("job") is None
    assert register.retire("job") is False
    assert register.jobs() == []
    assert not list(tmp_path.iterdir())


def test_a_register_refuses_by_conflict_not_by_error(tmp_path: Path) -> None:
    assert FileRegister(tmp_path).compare_and_set("job", "1", STATE) == Conflict()


@pytest.mark.parametrize("number", [0, -1, "1", None])
def test_a_cell_of_a_number_that_no_release_writes_is_not_read(
    number: object, tmp_path: Path
) -> None:
    register = FileRegister(tmp_path)
    register.compare_and_set("job", None, STATE)
    path = tmp_path / "job.json"
    cell = json.loads(path.read_text())
    path.write_text(json.dumps(cell | {"cell": number}))
    with pytest.raises(CorruptionError):
        register.load("job")
