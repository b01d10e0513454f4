"""Event logs of killed jobs are behaviours of the specification; forged logs are not.

The embedded runtime is killed here. ``tests/spark/test_spark_traces.py`` kills Spark's drivers, and has
recorded the logs in ``recorded``.
"""

from __future__ import annotations

import signal
from pathlib import Path

import psycopg
import pytest

from abs_core import eventlog
from abs_core.contracts import RegisterStore
from abs_core.crash import CrashPoint
from abs_core.errors import ConfigError
from abs_sinks.postgres import PostgresOptions, PostgresRegister
from abs_testing.fakes import FakeSink, FakeTarget
from tests import sample
from tests.embedded.test_kills import finish, start
from tests.spec import forged
from tests.spec.traces import (
    KILLED,
    SHAPES,
    Trace,
    add,
    check_accepted,
    gone,
    left,
    longest,
    read,
)

EMBEDDED = SHAPES["embedded-2pc"]
FOLDER = Path(__file__).parent / "recorded"
RECORDED = sorted(FOLDER.glob("*.jsonl"))
POINTS = [
    CrashPoint.AFTER_START,
    CrashPoint.BEFORE_PRE_COMMIT,
    CrashPoint.AFTER_PRE_COMMIT,
    CrashPoint.AFTER_INSPECT,
    CrashPoint.AFTER_DECIDE,
    CrashPoint.BETWEEN_COMMITS,
    CrashPoint.AFTER_FINISH,
]
KILLS = [(first, second) for first in POINTS for second in POINTS]


def killed_twice(folder: Path, points: tuple[CrashPoint, CrashPoint], *more: str) -> Path:
    """The log of a job that is killed at both points, then comes to its end."""
    log = folder / "events.jsonl"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(eventlog.VARIABLE, str(log))
        for point in points:
            process = start(folder, "aligned", *more, crash=str(point))
            process.communicate(timeout=100)
            assert process.returncode == -signal.SIGKILL
            add(log, KILLED)
        finish(folder, "aligned", *more)
    return log


def ended(log: Path, register: RegisterStore) -> Trace:
    stored = register.load("counting")
    assert stored is not None
    add(log, left(stored.state))
    return Trace(read(log), EMBEDDED)


@pytest.mark.long
@pytest.mark.parametrize("points", sample.members(KILLS, 1, "traces of the runtime"), ids=str)
def test_a_killed_job_s_log_is_a_behaviour_of_the_specification(
    tmp_path: Path, points: tuple[CrashPoint, CrashPoint]
) -> None:
    log = killed_twice(tmp_path, points)
    target = FakeTarget(tmp_path / "target.db")
    trace = ended(log, FakeSink(target, "2pc", "append").register())
    target.close()
    check_accepted(trace, tmp_path / "tlc")


@pytest.mark.campaign
@pytest.mark.services
@pytest.mark.parametrize("point", [CrashPoint.AFTER_PRE_COMMIT, CrashPoint.BETWEEN_COMMITS])
def test_so_is_that_of_one_that_writes_to_postgresql(
    tmp_path: Path, database: str, point: CrashPoint
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE counted (id bigint, value text)")
    log = killed_twice(tmp_path, (point, CrashPoint.AFTER_DECIDE), database)
    options = PostgresOptions.parse({"url": database, "dbtable": "counted"})
    check_accepted(ended(log, PostgresRegister(options)), tmp_path / "tlc")


def recorded(path: Path) -> Trace:
    """The log; its name begins with that of its shape."""
    system, protocol, *_ = path.stem.split("-")
    return Trace(read(path), SHAPES[f"{system}-{protocol}"])


@pytest.mark.long
def test_the_recorded_logs_of_killed_jobs_are_behaviours_of_the_specification(
    tmp_path: Path,
) -> None:
    traces = [recorded(path) for path in RECORDED]
    for path, (done, of) in zip(RECORDED, longest(traces, tmp_path), strict=True):
        assert done == of, f"{path.name}: line {done + 1} of {of} cannot be read"


@pytest.mark.long
@pytest.mark.parametrize("path", sample.members(RECORDED, 1, "forged logs"), ids=lambda p: p.stem)
def test_a_log_with_a_line_dropped_swapped_or_forged_is_rejected(
    path: Path, tmp_path: Path
) -> None:
    trace = recorded(path)
    all_forged = forged.all_of(trace.lines)
    assert len(all_forged) > 20
    traces = [Trace(lines, trace.shape) for _, lines in all_forged]
    for (what, _), (done, of) in zip(all_forged, longest(traces, tmp_path), strict=True):
        assert done < of, f"{path.name}, {what}: a behaviour of the specification has this log"


@pytest.mark.long
def test_a_run_that_was_overtaken_may_tell_late_but_not_decide(tmp_path: Path) -> None:
    """Made of a recorded log: the first run stood still while the next one began."""
    killed = recorded(FOLDER / "postgres-idempotent-inside_co_commit.jsonl")
    number = killed.lines.index(KILLED)
    *before, told_late = killed.lines[:number]
    started, *after, last = killed.lines[number + 1 :]
    assert (told_late["event"], started["event"]) == ("PreCommitted", "Started")
    others = [line for line in before if line["event"] == "PreCommitted" and line["epoch"] == 1]
    handles = [line["handle"] for line in (*others, told_late)]
    pid = next(line["pid"] for line in before if line["event"] == "Decided")
    decided = {"event": "Decided", "pid": pid, "epoch": 1, "generation": 1, "handles": handles}
    late = [*before, started, told_late, *after, gone(1), last]
    decides = [*before, started, told_late, decided, *after, gone(1), last]
    traces = [Trace(lines, killed.shape) for lines in (late, decides)]
    (done, of), (wrong, of_wrong) = longest(traces, tmp_path)
    assert done == of
    assert wrong < of_wrong


def test_an_event_log_without_a_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(eventlog.VARIABLE, raising=False)
    with pytest.raises(ConfigError, match="ABS_EVENT_LOG"):
        eventlog.to_file()
