"""A job begins from its snapshot, from a savepoint, or with a person's consent from an older one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from abs_core.errors import (
    ConfigError,
    CorruptionError,
    DataError,
    ProtocolError,
    RegisterLostError,
    UnavailableError,
)
from abs_core.registers import MemoryRegister
from abs_core.source import Split
from abs_embedded import (
    Graph,
    Job,
    Restore,
)
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget
from tests.embedded.bench import Bench
from tests.embedded.jobs.counting import graph, tables


def stop_with_savepoint(bench: Bench, what: Graph) -> int:
    """Run until a savepoint is committed; its checkpoint."""
    stop = Event()
    asked: list[int] = []
    taken: list[int] = []

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed" and not asked:
            asked.append(checkpoint)
            job.ask_savepoint()
        elif what == "committed" and bench.savepoints.completed():
            taken.append(checkpoint)
            stop.set()

    job = bench.job(what, savepoints=bench.savepoints, observe=observe)
    job.run(stop=stop)
    return bench.savepoints.completed()[0]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_goes_on_from_a_savepoint_with_another_parallelism(
    bench: Bench, parallelism: int
) -> None:
    rows = 20_000
    at = stop_with_savepoint(bench, graph(bench.sink, rows=rows))
    restore = Restore(at, bench.savepoints)
    if at != bench.store.completed()[-1]:
        restore = Restore()  # a checkpoint came after it: the sinks are committed to that one
    bench.job(graph(bench.sink, parallelism=parallelism, rows=rows)).run(restore)
    bench.check(rows)


def test_a_job_that_begins_from_anothers_savepoint_counts_on_from_its_number(
    bench: Bench, tmp_path: Path
) -> None:
    """State in another system is told apart by the numbers: a lower one would not be seen."""
    at = stop_with_savepoint(bench, graph(bench.sink, rows=20_000))
    (tmp_path / "other").mkdir()
    other, committed = Bench(tmp_path / "other"), list[int]()

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed":
            committed.append(checkpoint)

    job = other.job(graph(other.sink, rows=20_000), observe=observe)
    job.run(Restore(at, bench.savepoints, go_back=True))
    assert committed[0] > at


def test_an_older_snapshot_needs_consent(bench: Bench) -> None:
    bench.job(graph(bench.sink, rows=6_000)).run()
    completed = bench.store.completed()
    assert len(completed) > 1
    with pytest.raises(ProtocolError, match="The sinks are not committed to"):
        bench.job(graph(bench.sink, rows=6_000)).run(Restore(completed[0]))
    bench.check(6_000)


@pytest.mark.parametrize(("what", "name"), [("blobs", "{}/**/*.arrow"), ("complete", "{}.record")])
def test_a_damaged_snapshot_is_named_and_the_one_before_needs_consent(
    bench: Bench, what: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    stop = Event()
    job = bench.job(
        graph(bench.sink, rows=20_000),
        observe=lambda said, task, n: stop.set() if said == "committed" and n >= 2 else None,
    )
    job.run(stop=stop)
    before, last = bench.store.completed()[-2:]
    there = len(bench.rows())
    damaged = min((bench.store.folder / what).rglob(name.format(last)))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptionError, match=f"checkpoint {last} is damaged"):
        bench.job(graph(bench.sink, rows=20_000)).run()
    with pytest.raises((ProtocolError, CorruptionError)):
        bench.job(graph(bench.sink, rows=20_000)).run(Restore(before))
    assert len(bench.rows()) == there
    bench.job(graph(bench.sink, rows=20_000)).run(Restore(before, go_back=True))
    assert f"goes back from checkpoint {last} to {before}, by consent" in caplog.text
    assert {id_ for id_, _ in bench.rows()} == set(range(20_000))
    assert len(bench.rows()) > 20_000, "what was committed since is written again"
    assert bench.prepared() == 0


class _Keeping(LocalSnapshotStore):
    """Deletes nothing."""

    error: Exception = ProtocolError("planted: not deleted")

    def delete(self, keys: Iterable[str]) -> None:
        raise self.error


class _Remembering(TableSource):
    """Cannot forget."""

    def passed(self, left: Sequence[Split]) -> str:
        return "all"

    def committed(self, end: str) -> None:
        raise DataError("planted: not forgotten")


@pytest.mark.parametrize("error", [_Keeping.error, UnavailableError("planted"), OSError("planted")])
def test_a_sweep_that_fails_is_logged_and_stops_no_job(
    bench: Bench, tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    store = bench.store = _Keeping(tmp_path / "kept")
    store.error = error
    committed: list[int] = []

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed":
            committed.append(checkpoint)

    bench.job(graph(bench.sink, rows=2_000), observe=observe).run()
    told = [
        record.getMessage() for record in caplog.records if "could not be deleted" in record.message
    ]
    assert len(told) == len(committed)
    for checkpoint, message in zip(committed, told, strict=True):
        assert message.startswith(f"job counting, checkpoint {checkpoint}: ")
        assert "planted" in message
    bench.check(2_000)


def test_a_source_that_cannot_forget_is_logged_and_stops_no_job(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    built = graph(bench.sink, rows=6_000)
    built.nodes["rows"].source = _Remembering(tables(6_000), 20)
    bench.job(built, retain=1).run()
    assert "planted: not forgotten" in caplog.text
    bench.check(6_000)


def test_state_that_no_operator_claims_is_refused_unless_allowed(bench: Bench) -> None:
    bench.job(graph(bench.sink, rows=300)).run()
    changed = Graph("counting", parallelism=2)
    rows = changed.source("rows", TableSource(tables(300)))
    rows.map("other", lambda b: b.select([])).sink("out", bench.sink)
    with pytest.raises(ConfigError, match="count"):
        bench.job(changed).run()
    bench.job(changed).run(Restore(drop_state=True))
    bench.check(300)


def test_snapshots_without_their_register_are_refused(bench: Bench, tmp_path: Path) -> None:
    bench.job(graph(bench.sink, rows=300)).run()
    sink = FakeSink(FakeTarget(tmp_path / "other.db"), "2pc", "append")
    with pytest.raises(RegisterLostError, match="is not there"):
        Job(graph(sink, rows=300), bench.store, sink.register()).run()
    assert sink.register().load("counting") is None, "a register was minted"
    bench.job(graph(bench.sink, rows=300)).run()  # the register is there again
    bench.check(300)


@pytest.mark.parametrize("lost", ["the last two epochs", "the last generation", "all", "its id"])
def test_snapshots_tell_a_register_that_went_back(bench: Bench, lost: str) -> None:
    """Each snapshot notes what was decided before it: what the sinks committed is not done again."""
    register = MemoryRegister()
    for _ in range(4):  # each run decides its last checkpoint
        Job(graph(bench.sink, rows=300), bench.store, register).run()
    stored = register.load("counting")
    assert stored is not None
    state = stored.state
    assert state.frontier is not None
    assert state.frontier >= 2
    older = {
        "the last two epochs": replace(state, frontier=state.frontier - 2),
        "the last generation": replace(state, generation=1),
        "all": None,
        "its id": replace(state, register="0" * 16),
    }[lost]
    if older is None:
        register.retire("counting")
    else:
        register.compare_and_set("counting", stored.version, older)
    records = bench.store.completed()
    for _ in range(2):
        with pytest.raises(RegisterLostError):
            Job(graph(bench.sink, rows=300), bench.store, register).run()
    found = register.load("counting")
    assert (None if found is None else found.state) == older
    assert bench.store.completed() == records
    bench.check(300)
