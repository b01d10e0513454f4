"""One stream into several sinks: an epoch is in all or in none, also after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from abs_core.crash import VARIABLE, CrashPoint
from abs_core.errors import OptionError
from abs_embedded import Graph, Sinks
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeTarget
from tests.embedded.bench import Bench
from tests.embedded.jobs.counting import expected, graph
from tests.embedded.jobs.into_two import NAMES

JOB = Path(__file__).parent / "jobs" / "into_two.py"
ONE_HAS_IT, UNDECIDED = CrashPoint.BETWEEN_COMMITS, CrashPoint.AFTER_PRE_COMMIT


def live(folder: Path, crash: str = "") -> int:
    """The job, to its end or to a crash point; its exit code."""
    return subprocess.run(
        [sys.executable, str(JOB), str(folder)],
        env={**os.environ, VARIABLE: crash},
        stdout=subprocess.DEVNULL,
        timeout=100,
        check=False,
    ).returncode


def rows_of(folder: Path) -> list[list[tuple[int, str]]]:
    """What is in each target, sorted."""
    found = []
    for name in NAMES:
        target = FakeTarget(folder / f"{name}.db")
        with target.transaction() as db:
            found.append(sorted(db.execute("SELECT id, value FROM data").fetchall()))
        target.close()
    return found


def prepared(folder: Path) -> int:
    total = 0
    for name in NAMES:
        target = FakeTarget(folder / f"{name}.db")
        with target.transaction() as db:
            total += int(db.execute("SELECT count(*) FROM prepared").fetchone()[0])
        target.close()
    return total


@pytest.mark.long
def test_an_epoch_that_a_kill_left_in_one_target_is_in_both_after_the_next_start(
    tmp_path: Path,
) -> None:
    """Killed between two commits, and then before the next decision: the start has ended the first."""
    assert live(tmp_path, ONE_HAS_IT) == -signal.SIGKILL
    left, right = rows_of(tmp_path)
    assert left, "killed before the first commit"
    assert not right, "killed after the second commit"
    assert live(tmp_path, UNDECIDED) == -signal.SIGKILL
    left, right = rows_of(tmp_path)
    assert left == right
    assert live(tmp_path) == 0
    left, right = rows_of(tmp_path)
    assert left == right
    ids, values = expected()
    assert sorted(id_ for id_, _ in left) == ids
    assert sorted(value for _, value in left) == values
    assert prepared(tmp_path) == 0


def test_each_of_several_sinks_is_a_sink_of_the_graph_under_its_own_name(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    built = graph(Sinks({"left": bench.sink, "right": bench.sink}), rows=60)
    ends = {id_ for id_, node in built.nodes.items() if node.sink is not None}
    assert ends == {"out.left", "out.right"}
    bench.job(built).run()
    assert len(bench.rows()) == 2 * 60


def test_the_line_of_the_docs_runs_as_it_stands(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "abs.md").read_text()
    (line,) = [one for one in page.splitlines() if "Sinks({" in one]
    bench = Bench(tmp_path)
    built = Graph("rows")
    table = pa.table({"id": list(range(60)), "value": ["a"] * 60})
    rows = built.source("rows", TableSource([table], 1))
    exec(line, {"rows": rows, "Sinks": Sinks, "postgres_sink": bench.sink, "s3_sink": bench.sink})
    bench.job(built).run()
    assert len(bench.rows()) == 2 * 60


@pytest.mark.parametrize("names", [[], ["left", ""]])
def test_several_sinks_need_names(tmp_path: Path, names: list[str]) -> None:
    sink = Bench(tmp_path).sink
    with pytest.raises(OptionError, match="sink"):
        Sinks(dict.fromkeys(names, sink))
