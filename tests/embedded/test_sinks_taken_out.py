"""A sink that is taken out or moved: what is decided is committed first, or the start is refused."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from abs_core.contracts import Committer
from abs_core.errors import ConfigError, IdentityError, RefusedError, UnavailableError
from abs_core.model import Committable, HandleName, JobState, Outcome, job_key
from abs_embedded import Graph, Job, Restore, Settings, Stream
from abs_embedded.sinks import SINK_STRIDE
from abs_embedded.snapshot import read_record
from abs_embedded.state.contracts import BlobRef
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.sink import PostgresSink
from abs_testing.fakes import FakeSink, FakeTarget
from abs_testing.fakes.sink import HandleCommitter
from abs_testing.harness import SCHEMA
from tests.embedded.bench import OFTEN, Bench
from tests.embedded.jobs.counting import graph

ROWS = 6_000


def two(bench: Bench, other: FakeSink) -> Graph:
    """Each row goes to two sinks, ``out`` and ``other``."""
    built = graph(bench.sink, rows=ROWS)
    Stream(built, "count").sink("other", other)
    return built


def one(bench: Bench) -> Graph:
    return graph(bench.sink, rows=ROWS)


def register(bench: Bench) -> JobState:
    stored = bench.sink.register().load(job_key("counting"))
    assert stored is not None
    return stored.state


class Refusing(HandleCommitter):
    """Commits nothing."""

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        raise RefusedError("planted")


class RefusingSink(FakeSink):
    def committer(self) -> Committer:
        return Refusing(self._target, keyed=False)


def test_a_sink_with_decided_handles_is_not_taken_out_before_they_are_committed(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Also by consent to drop state; and nobody is fenced by the try."""
    with pytest.raises(RefusedError, match="planted"):
        bench.job(two(bench, RefusingSink(bench.target, "2pc", "append")), restarts=0).run()
    decided = register(bench)
    assert decided.open
    with pytest.raises(ConfigError, match="The sink other was removed") as refused:
        bench.job(one(bench)).run(Restore(drop_state=True))
    assert refused.value.epoch == decided.open[0].epoch
    assert refused.value.handle in {str(handle) for handle in decided.open[0].handles}
    assert "run the graph with that sink once more" in refused.value.remedy
    assert register(bench) == decided

    bench.job(two(bench, bench.sink)).run()
    assert len(bench.rows()) == 2 * ROWS
    with pytest.raises(ConfigError, match="other are sinks"):
        bench.job(one(bench)).run()
    bench.job(one(bench)).run(Restore(drop_state=True))
    assert "continues without the sinks other, by consent" in caplog.text
    assert len(bench.rows()) == 2 * ROWS
    assert bench.prepared() == 0


def test_a_start_says_what_it_restores_and_what_it_rolled_forward(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "abs_embedded")
    with pytest.raises(RefusedError, match="planted"):
        bench.job(two(bench, RefusingSink(bench.target, "2pc", "append")), restarts=0).run()
    job, decided = job_key("counting"), register(bench)
    new = "starts without a snapshot; 0 handles that were decided were rolled forward"
    assert said(caplog) == [f"job {job}, generation 1: {new}"]

    caplog.clear()
    bench.job(two(bench, bench.sink)).run()
    (decision,) = decided.open
    restored = f"job {job}, generation 2: restores checkpoint {decision.epoch}; "
    handles = f"{len(decision.handles)} handles that were decided were rolled forward"
    assert said(caplog) == [restored + handles]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "rolled forward" in line]


class Undecided(LocalSnapshotStore):
    """Completes one checkpoint, and no other."""

    def complete(self, checkpoint: int, record: bytes, blobs: Iterable[BlobRef]) -> None:
        if self.completed():
            raise UnavailableError("planted")
        super().complete(checkpoint, record, blobs)


def left_undecided(bench: Bench, other: FakeSink) -> None:
    """A run that ends with handles of both sinks that no decision names."""
    store, bench.store = bench.store, Undecided(bench.store.folder)
    strict = Settings(interval=OFTEN.interval, tolerated=0)
    with pytest.raises(UnavailableError, match="planted"):
        bench.job(two(bench, other), settings=strict).run()
    bench.store = store


def test_undecided_handles_of_a_sink_that_is_gone_are_swept_where_another_sink_sees_them(
    bench: Bench,
) -> None:
    left_undecided(bench, bench.sink)
    assert bench.prepared() > 0
    bench.job(one(bench)).run(Restore(drop_state=True))
    assert bench.prepared() == 0
    ids = [id_ for id_, _ in bench.rows()]
    assert set(ids) == set(range(ROWS))
    assert ROWS <= len(ids) < 2 * ROWS, "of the other sink, what its one decision named"


@pytest.mark.services
def test_prepared_transactions_of_a_sink_that_is_gone_are_rolled_back_by_one_on_the_same_server(
    bench: Bench, database: str
) -> None:
    """PostgreSQL, whose prepared transactions are of a whole server, in whatever table they wrote."""

    def sink(table: str) -> PostgresSink:
        given = {"url": database, "dbtable": table}
        return PostgresSink(PostgresOptions.parse(given), SCHEMA, co_commit=False)

    def job(store: LocalSnapshotStore, *more: str) -> Job:
        built = graph(sink("kept"), rows=ROWS)
        for table in more:
            Stream(built, "count").sink(table, sink(table))
        return Job(built, store, bench.sink.register(), settings=replace(OFTEN, tolerated=0))

    def asked(query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(database) as connection:
            return connection.execute(query.encode()).fetchall()

    with psycopg.connect(database, autocommit=True) as connection:
        for table in ("kept", "gone"):
            connection.execute(f"CREATE TABLE {table} (id bigint, value text)".encode())
    prepared = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
    with pytest.raises(UnavailableError, match="planted"):
        job(Undecided(bench.store.folder), "gone").run()
    before = asked(prepared)
    numbers = {
        handle.partition // SINK_STRIDE for (gid,) in before if (handle := HandleName.parse(gid))
    }
    assert numbers == {0, 1}, "of both sinks"
    with pytest.raises(IdentityError, match="target") as refused:
        job(bench.store).run(Restore(drop_state=True))
    assert asked(prepared) == before
    job(bench.store).run(Restore(drop_state=True, adopt=token(refused.value)))
    assert asked(prepared) == []
    assert sorted(asked("SELECT id FROM kept")) == [(n,) for n in range(ROWS)]
    gone = [id_ for (id_,) in asked("SELECT id FROM gone")]
    assert 0 < len(gone) == len(set(gone)) < ROWS, "what its one decision named"


def test_a_sink_with_a_target_of_its_own_is_taken_out_by_consent_and_put_back(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = FakeTarget(tmp_path / "other.db")
    elsewhere = FakeSink(target, "2pc", "append")
    left_undecided(bench, elsewhere)
    with pytest.raises(IdentityError, match="target") as refused:
        bench.job(one(bench)).run(Restore(drop_state=True))
    bench.job(one(bench)).run(Restore(drop_state=True, adopt=token(refused.value)))
    assert "without the sinks other" in caplog.text
    assert "`abs in-doubt list`" in caplog.text
    bench.check(ROWS)

    def prepared() -> int:
        return len(elsewhere.committer().in_doubt(job_key("counting")))

    assert prepared() > 0, "nobody sees them: that is what the warning says"
    with pytest.raises(IdentityError, match="target") as refused:
        bench.job(two(bench, elsewhere)).run()
    bench.job(two(bench, elsewhere)).run(Restore(adopt=token(refused.value)))
    assert prepared() == 0
    bench.check(ROWS)


def swapped(bench: Bench, other: FakeSink) -> Graph:
    """As ``two``; each sink has the other one's id."""
    built = graph(other, rows=ROWS)
    Stream(built, "count").sink("other", bench.sink)
    return built


def test_what_two_sinks_have_prepared_is_swept_also_where_they_swap_their_ids(
    bench: Bench, tmp_path: Path
) -> None:
    elsewhere = FakeSink(FakeTarget(tmp_path / "other.db"), "2pc", "append")
    left_undecided(bench, elsewhere)
    assert bench.prepared() > 0
    bench.job(swapped(bench, elsewhere)).run()
    assert bench.prepared() == 0
    assert elsewhere.committer().in_doubt(job_key("counting")) == []


def test_two_sinks_do_not_swap_their_ids_before_what_is_decided_is_committed(
    bench: Bench, tmp_path: Path
) -> None:
    target = FakeTarget(tmp_path / "other.db")
    with pytest.raises(RefusedError, match="planted"):
        bench.job(two(bench, RefusingSink(target, "2pc", "append")), restarts=0).run()
    decided, elsewhere = register(bench), FakeSink(target, "2pc", "append")
    with pytest.raises(ConfigError, match=r"The sink \w+ was .* given another target") as refused:
        bench.job(swapped(bench, elsewhere)).run()
    assert refused.value.epoch == decided.open[0].epoch
    assert register(bench) == decided
    bench.job(two(bench, elsewhere)).run()
    bench.check(ROWS)
    assert elsewhere.committer().in_doubt(job_key("counting")) == []


def token(error: IdentityError) -> str:
    found = re.search(r"adopt=(\w+)", error.remedy)
    assert found is not None
    return found[1]


def test_a_sink_that_commits_with_the_register_does_not_take_over_from_another(
    bench: Bench,
) -> None:
    sink = FakeSink(bench.target, "wal", "append")
    Job(graph(sink, rows=300), bench.store, settings=OFTEN).run()
    renamed = graph(sink, rows=300)
    renamed.nodes["renamed"] = renamed.nodes.pop("out")
    renamed.nodes["renamed"].id = "renamed"
    with pytest.raises(ConfigError, match="renamed commits rows") as refused:
        Job(renamed, bench.store, settings=OFTEN).run(Restore(drop_state=True))
    assert "give it the id out" in refused.value.remedy
    bench.check(300)


def test_a_record_that_notes_no_targets_of_its_sinks_is_read(bench: Bench) -> None:
    """Those of earlier releases do not."""
    bench.job(one(bench)).run()
    last = bench.store.completed()[-1]
    now = json.loads(bench.store.record(last))
    assert now["sinks"] == [["out", bench.sink.target_id]]
    assert read_record(json.dumps({**now, "sinks": ["out"]}).encode()).sinks == {"out": ""}
