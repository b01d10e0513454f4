"""What operators in a loop emit at the end of the data: it leaves the loop, or is an error."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from abs_core.errors import ConfigError
from abs_embedded import STRATEGIES, Graph, Settings, Stream
from abs_embedded.tables import TableSource
from abs_testing.harness import SCHEMA
from tests.embedded.bench import Bench

ROWS = pa.table({"key": [n % 3 for n in range(60)], "at": range(60), "round": [0] * 60})
CYCLIC = [name for name, strategy in STRATEGIES.items() if strategy.cycles]


def windows(head: Stream) -> Stream:
    """Counts by key and window of what has not gone round yet; the result is of round one."""
    fresh = head.filter("fresh", lambda b: pc.equal(b["round"], 0))
    counted = fresh.key_by("key").window("window", "at", 20, "count", out="round")
    return counted.map(
        "of-round-one",
        lambda b: pa.record_batch(
            [b["key"], b["window_start"], b["round"]], names=["key", "at", "round"]
        ),
    )


def job(bench: Bench, body: object) -> Graph:
    built = Graph("rounds", parallelism=2)
    (
        built.source("rows", TableSource([ROWS], 7))
        .iterate("loop", body)  # type: ignore[arg-type]
        .map("text", lambda b: pa.record_batch([b["at"], b["key"].cast("string")], schema=SCHEMA))
        .sink("out", bench.sink)
    )
    return built


@pytest.mark.parametrize("strategy", CYCLIC)
def test_what_leaves_a_loop_at_the_end_is_committed(tmp_path: Path, strategy: str) -> None:
    def body(head: Stream) -> tuple[Stream, Stream]:
        counted = windows(head)
        return counted.filter("none", lambda b: pc.less(b["round"], 0)), counted

    bench = Bench(tmp_path)
    bench.job(job(bench, body), strategy, settings=Settings(interval=0.005)).run()
    assert sorted(bench.rows()) == [(at, str(key)) for at in (0, 20, 40) for key in range(3)]


@pytest.mark.parametrize("strategy", CYCLIC)
def test_what_goes_round_after_the_end_is_an_error_and_not_lost(
    tmp_path: Path, strategy: str
) -> None:
    def body(head: Stream) -> tuple[Stream, Stream]:
        return windows(head), head.filter("counted", lambda b: pc.greater(b["round"], 0))

    bench = Bench(tmp_path)
    with pytest.raises(ConfigError, match="a loop after it had ended"):
        bench.job(job(bench, body), strategy, settings=Settings(interval=0.005)).run()
