"""A Spark checkpoint shows the phases, whatever the sink; figures of a run are what they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from abs_chaos.moments import Moment
from abs_chaos.outcome import percentile
from abs_chaos.watch import CheckpointWatch


def touch(checkpoint: Path, name: str) -> None:
    file = checkpoint / name
    file.parent.mkdir(exist_ok=True, parents=True)
    file.touch()


def test_the_temporary_file_of_a_commit_shows_that_the_sink_is_through(tmp_path: Path) -> None:
    watch = CheckpointWatch(tmp_path)
    moments = [watch.look().moment]
    for name in ("offsets/9", "offsets/10", "commits/9", "commits/.10.5e1c.tmp", "commits/10"):
        touch(tmp_path, name)
        moments.append(watch.look().moment)
    writing = Moment.WRITING
    assert moments[:4] == [Moment.BETWEEN, writing, writing, writing]
    assert moments[4:] == [Moment.COMMITTED, Moment.BETWEEN]


def test_a_killed_runs_temporary_file_tells_nothing_of_the_next_run(tmp_path: Path) -> None:
    for name in ("offsets/3", "commits/.3.5e1c.tmp"):
        touch(tmp_path, name)
    assert CheckpointWatch(tmp_path).look().moment is Moment.WRITING, "left by an earlier run"
    watch = CheckpointWatch(tmp_path)
    touch(tmp_path, "commits/.3.77aa.tmp")
    assert watch.settled().moment is Moment.COMMITTED, "what the kill hit"
    assert watch.look().moment is Moment.WRITING, "the next run has the epoch still to write"


@pytest.mark.parametrize(
    ("values", "p50", "p99"),
    [([], None, None), ([3.0], 3.0, 3.0), ([5.0, 1.0, 2.0, 4.0], 2.0, 5.0)],
)
def test_a_share_of_the_recoveries_took_no_longer(
    values: list[float], p50: float | None, p99: float | None
) -> None:
    assert (percentile(values, 0.5), percentile(values, 0.99)) == (p50, p99)
