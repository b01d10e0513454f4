"""The runtime with real threads, a real snapshot store and a sink that commits in two phases."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Timer

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from abs_core.errors import (
    ConfigError,
    OptionError,
)
from abs_embedded import (
    STRATEGIES,
    Graph,
    Settings,
    describe,
    mermaid,
    region,
)
from abs_embedded.tables import TableSource
from abs_testing.harness import SCHEMA
from tests import sample
from tests.embedded.bench import Bench
from tests.embedded.jobs.counting import graph, tables


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_commits_each_row_once(bench: Bench, strategy: str) -> None:
    bench.job(graph(bench.sink, rows=2_000), strategy).run()
    bench.check(2_000)


def test_a_finished_job_that_is_started_again_writes_nothing(bench: Bench) -> None:
    for _ in range(2):
        bench.job(graph(bench.sink, rows=300)).run()
    bench.check(300)


def test_a_graph_with_loops_is_refused_by_drain(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="loops"):
        bench.job(collatz(bench), "drain").run()


def collatz(bench: Bench) -> Graph:
    """Each number goes round until it is 1; out come (start, how often)."""

    def step(batch: pa.RecordBatch) -> pa.RecordBatch:
        n = batch["n"]
        half = pc.divide(n, 2)
        odd = pc.equal(pc.subtract(n, pc.multiply(half, 2)), 1)
        grown = pc.if_else(odd, pc.add(pc.multiply(n, 3), 1), half)
        return pa.record_batch(
            [
                batch["id"],
                pc.if_else(pc.equal(n, 1), n, grown),
                pc.add(batch["steps"], pc.if_else(pc.equal(n, 1), 0, 1)),
            ],
            names=["id", "n", "steps"],
        )

    def body(head):  # type: ignore[no-untyped-def]
        stepped = head.key_by("id").map("step", step)
        again = stepped.filter("again", lambda b: pc.greater(b["n"], 1))
        leave = stepped.filter("leave", lambda b: pc.equal(b["n"], 1))
        return again, leave

    starts = list(range(1, 200))
    table = pa.table({"id": starts, "n": starts, "steps": [0] * len(starts)})
    built = Graph("collatz", parallelism=2)
    (
        built.source("starts", TableSource([table], 10))
        .iterate("loop", body)
        .map(
            "text",
            lambda b: pa.record_batch([b["id"], b["steps"].cast(pa.string())], schema=SCHEMA),
        )
        .sink("out", bench.sink)
    )
    return built


def steps(n: int) -> int:
    taken = 0
    while n > 1:
        n, taken = (3 * n + 1 if n % 2 else n // 2), taken + 1
    return taken


@sample.cases(1)
@pytest.mark.parametrize("strategy", ["aligned", "unaligned", "stop_the_world"])
def test_a_loop_yields_each_record_once(bench: Bench, strategy: str) -> None:
    bench.job(collatz(bench), strategy, settings=Settings(interval=0.005)).run()
    assert sorted(bench.rows()) == [(n, str(steps(n))) for n in range(1, 200)]


@pytest.fixture
def deadline(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """Tasks look for work by themselves now and then: here later than when the job is stopped."""
    monkeypatch.setattr(region, "IDLE_SECONDS", 60)
    stop = Event()
    timer = Timer(30, stop.set)
    timer.start()
    yield stop
    timer.cancel()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_whoever_makes_work_for_a_task_wakes_it(
    bench: Bench, strategy: str, deadline: Event
) -> None:
    bench.job(graph(bench.sink, rows=2_000), strategy, settings=Settings(interval=1e6)).run(
        None, deadline
    )
    bench.check(2_000)


@sample.cases(1)
@pytest.mark.parametrize("strategy", ["aligned", "unaligned", "stop_the_world"])
def test_the_last_to_leave_a_loop_wakes_its_heads(
    bench: Bench, strategy: str, deadline: Event
) -> None:
    bench.job(collatz(bench), strategy, settings=Settings(interval=1e6)).run(None, deadline)
    assert len(bench.rows()) == 199


def test_a_parallelism_of_none_at_all_is_refused(bench: Bench) -> None:
    with pytest.raises(OptionError, match="parallelism 0"):
        Graph("idle").source("rows", TableSource(tables(1)), parallelism=0)


@pytest.mark.parametrize("id_", ["", "two words", "a/b", "x" * 101])
def test_an_id_that_names_no_blob_is_refused_before_it_keeps_anything(id_: str) -> None:
    with pytest.raises(OptionError, match="operator id"):
        Graph("named").source(id_, TableSource(tables(1)))


@pytest.mark.parametrize(("tasks", "groups"), [(1, 32_769), (1, 0), (9, 8), (0, 8)])
def test_a_graph_with_key_groups_that_cannot_be_is_refused(tasks: int, groups: int) -> None:
    with pytest.raises(ConfigError, match=f"{tasks} does not fit {groups} key groups"):
        Graph("wide", parallelism=tasks, max_parallelism=groups)


def test_a_graph_has_as_many_key_groups_as_there_may_be() -> None:
    assert Graph("wide", max_parallelism=32_768).max_parallelism == 32_768


def test_the_plan_is_told_as_text(bench: Bench) -> None:
    told = describe(collatz(bench))
    assert "loop [iteration head x2]" in told
    assert "<- loop-tail forward (back-edge)" in told


def test_the_plan_is_told_as_a_picture(bench: Bench) -> None:
    told = mermaid(collatz(bench))
    assert told.startswith("flowchart LR\n")
    assert told.count("-.->") == 1
    assert told.count("-->") == len(collatz(bench).nodes) - 1
