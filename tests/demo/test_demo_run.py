"""The whole demo, small: through the command line, with real SIGKILLs and a real audit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from abs_cli.main import app
from abs_core.errors import ConfigError
from tests import sample
from tests.demo.kills import planned

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(600)]

DEADLINE_S = 500
INTERRUPTED = 130


# A test run that was started in the background hands an ignored SIGINT down.
_MAIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from abs_cli.main import main
main()
"""


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where the demo puts its files; open to the user that PostgreSQL runs as under root."""
    folder = Path(tempfile.mkdtemp(prefix="abs-test-demo-"))
    folder.chmod(0o711)
    yield folder
    # Of a demo that failed its test, the reaper may be deleting at the same time.
    shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Demo:
    """``abs demo`` as a process; its output goes to files: the reaper holds pipes open for a while."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def end(self) -> int:
        return self.process.wait(DEADLINE_S)

    @property
    def said(self) -> str:
        return self.err.read_text()


@pytest.fixture
def start(scratch: Path, tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Starts a demo; what still runs of it at the end is killed."""
    started: list[Demo] = []

    def begin(*arguments: str) -> Demo:
        out, err = tmp_path / "out", tmp_path / "err"
        command = [sys.executable, "-c", _MAIN, "demo"]
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = subprocess.Popen(
                [*command, *arguments],
                env={**os.environ, "TMPDIR": str(scratch)},
                stdout=out_file,
                stderr=err_file,
            )
        started.append(Demo(process, out, err))
        return started[-1]

    yield begin
    for demo in started:
        demo.process.kill()
        demo.process.wait()


def _left_in(scratch: Path) -> list[str]:
    """Files of the demo, and processes that work on them; the server's binaries may stay."""
    files = [path.name for path in scratch.iterdir() if not path.name.startswith("abs-sinks-")]
    return files + [str(process) for process in _processes_of(scratch)]


def _processes_of(scratch: Path) -> list[tuple[int, str]]:
    """Pid and name of what works on the demo's files; one that ends meanwhile is not counted."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(scratch) in word for word in process.cmdline()):
                found.append((process.pid, process.name()))
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize(
    # The moment after `commit()` lasts milliseconds: more epochs are more chances to hit it.
    ("kills_due", "days"),
    [(1, 32), pytest.param(2, 64, marks=pytest.mark.campaign)],
)
def test_a_job_that_is_killed_writes_every_flight_exactly_once(
    start: Callable[..., Demo], scratch: Path, kills_due: int, days: int
) -> None:
    demo = start("--json", "--days", f"{days}", "--kills", f"{kills_due}", "--seed", "7")
    code = demo.end()
    result = json.loads(demo.out.read_text())
    assert (code, result["clean"], result["shortcomings"]) == (0, True, []), demo.said
    kills = result["kills_done"]
    assert len(planned(kills)) == kills_due
    assert "committed" in [kill["found"] for kill in kills]
    # Driver, JVM, Python workers: all of the tree, not just its root.
    assert all(kill["processes"] >= 4 for kill in kills)
    audit = result["audit"]
    assert audit["expected"]["records"] == audit["actual"]["records"] == result["rows"] > days * 750
    assert [audit[k] for k in ("missing", "duplicate", "unexpected", "corrupted")] == [0] * 4
    assert audit["left_behind"]["prepared"] == []
    assert f"SIGKILL #{len(kills)} {kills[-1]['story']}" in demo.said
    assert _left_in(scratch) == []


@pytest.mark.parametrize(
    "protocol",
    ["2pc", *(pytest.param(way, marks=pytest.mark.campaign) for way in ("wal", "idempotent"))],
)
def test_the_embedded_runtime_writes_every_flight_exactly_once_over_kills(
    start: Callable[..., Demo], scratch: Path, protocol: str
) -> None:
    demo = start(
        *("--json", "--engine", "embedded", "--protocol", protocol),
        *("--days", "48", "--kills", "2", "--seed", "7"),
    )
    code = demo.end()
    result = json.loads(demo.out.read_text())
    assert (code, result["clean"], result["shortcomings"]) == (0, True, []), demo.said
    assert [kill["processes"] for kill in result["kills_done"]] == [1, 1]
    audit = result["audit"]
    assert audit["expected"]["records"] == audit["actual"]["records"] == result["rows"] > 40_000
    assert [audit[k] for k in ("missing", "duplicate", "unexpected", "corrupted")] == [0] * 4
    assert _left_in(scratch) == []


@pytest.mark.campaign
def test_three_queries_through_kafka_write_every_flight_exactly_once_over_kills(
    start: Callable[..., Demo], scratch: Path
) -> None:
    demo = start("--json", "--route", "chain", "--days", "180", "--kills", "2", "--seed", "7")
    code = demo.end()
    result = json.loads(demo.out.read_text())
    assert (code, result["clean"], result["shortcomings"]) == (0, True, []), demo.said
    assert len(planned(result["kills_done"])) == 2
    for audit in (result["audit"], result["audits"]["topic"], result["audits"]["bucket"]):
        assert audit["expected"]["records"] == audit["actual"]["records"] == result["rows"]
        assert [audit[k] for k in ("missing", "duplicate", "unexpected", "corrupted")] == [0] * 4
    assert _left_in(scratch) == []


@pytest.mark.campaign
def test_the_same_kill_of_a_plain_writer_is_found_by_the_audit(
    start: Callable[..., Demo], scratch: Path
) -> None:
    demo = start("--json", "--unsafe", "--days", "32", "--kills", "1", "--seed", "7")
    assert demo.end() == 1, demo.said
    result = json.loads(demo.out.read_text())
    assert not result["clean"]
    assert result["audit"]["duplicate"] > 1_000
    assert result["audit"]["missing"] == result["audit"]["corrupted"] == 0
    assert _left_in(scratch) == []


@sample.cases(1)
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, INTERRUPTED), (signal.SIGKILL, -9)])
def test_a_demo_that_is_interrupted_or_killed_leaves_nothing_behind(
    signum: int, code: int, start: Callable[..., Demo], scratch: Path
) -> None:
    demo = start("--days", "32", "--kills", "1", "--seed", "7")
    begun = _until(lambda: bool(_jvms(scratch)) or demo.process.poll() is not None, DEADLINE_S)
    assert begun, (demo.said, _processes_of(scratch))
    demo.process.send_signal(signum)
    assert demo.end() == code, demo.said
    assert _until(lambda: _left_in(scratch) == [], within_s=60), _left_in(scratch)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--protocol", "3pc"], "choose from 2pc, wal, idempotent"),
        (["--engine", "embedded", "--unsafe"], "omit --engine embedded"),
        (["--engine", "flink"], "choose from spark, embedded"),
        (["--days", "366"], "choose from 1 to 365"),
        (["--days", "20", "--kills", "5"], "have room for 1"),
    ],
)
def test_a_demo_that_makes_no_sense_is_refused_before_anything_starts(
    arguments: list[str], said: str, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    done = CliRunner().invoke(app, ["demo", *arguments])
    assert isinstance(done.exception, ConfigError), done.output
    assert said in str(done.exception)
    assert list(scratch.iterdir()) == []


def _until(condition: Callable[[], bool], within_s: float) -> bool:
    give_up = time.monotonic() + within_s
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.05)
    return condition()


def _jvms(scratch: Path) -> list[int]:
    return [pid for pid, name in _processes_of(scratch) if name == "java"]
