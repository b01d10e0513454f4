"""Spark drivers as processes of their own, to be killed, stopped and continued as one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import psutil
import pyspark

from abs_core.crash import CrashPoint
from abs_services.processes import ProcessId
from abs_services.reaper import REAPER
from tests.spark.jobs import stream_files
from tests.spark.jobs.stream_files import Job

PYTHON = "ABS_TEST_PYTHON"
"""Names another Python than this one, on which drivers run."""

DEADLINE_S = 300.0
"""A machine under load takes more than a minute to begin a query. Who passes waits for none of it."""


def interpreter() -> str:
    """The Python of drivers."""
    return os.environ.get(PYTHON, sys.executable)


def until(
    condition: Callable[[], bool], what: str, seconds: float = DEADLINE_S, every: float = 0.01
) -> None:
    """Wait for a condition; fail where it does not come true in time.

    Args:
        every: seconds between two looks; more, where a look takes the processor from what it waits for.
    """
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, f"waited {seconds:.0f} s in vain until {what}"
        time.sleep(every)


def copy_checkpoint(checkpoint: Path, to: Path) -> Path:
    """Copy a checkpoint while its query runs: without the files that Spark is about to rename."""
    return Path(
        shutil.copytree(checkpoint, to, ignore=shutil.ignore_patterns("*.tmp", "*.tmp.crc"))
    )


def killed_at(point: CrashPoint, nth: int, job: Job, folder: Path, url: str | None = None) -> None:
    """Run a driver; as soon as one of its processes has died at the point, kill its whole tree.

    Args:
        nth: it dies when it passes the point for so many times.
        folder: of this crash alone.
        url: as of ``Driver``.
    """
    died = folder / "died"
    with Driver(job, folder, url, f"{point}#{nth}@{died}") as driver:
        until(lambda: died.exists() or driver.has_ended, f"it dies at {point}")
        assert died.exists(), f"{point} was not reached:\n{driver.log[-4000:]}"
        driver.kill()


class KilledAtTheEnd(ABC):
    """A context manager over processes: whatever is left of them is killed at the end."""

    @abstractmethod
    def kill(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.kill()


class Session(KilledAtTheEnd):
    """A process in a session of its own, with all that it starts.

    The session is what all of its processes share, those which make process groups of their own, too.
    Use as a context manager: whatever is left of it is killed at the end.

    Args:
        folder: the working directory; its log is written there.
        environment: of the process.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], log: str
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log_path = folder / log
        with self.log_path.open("ab") as file:
            self._popen = subprocess.Popen(
                list(command),
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._id = ProcessId.of(self._popen.pid)
        if self._id is not None:
            REAPER.register(self._id)

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        if any(raised):
            print(self.log[-6000:])

    @property
    def log(self) -> str:
        """All that its processes have written to the console."""
        return self.log_path.read_text(errors="replace")

    @property
    def has_ended(self) -> bool:
        return self._popen.poll() is not None

    def terminate(self) -> None:
        """SIGTERM to the driver's own process."""
        self._popen.terminate()

    def end(self, seconds: float = DEADLINE_S) -> int:
        """Wait for the driver to end by itself; its exit code."""
        until(lambda: self.has_ended, "the driver ends", seconds)
        return int(self._popen.returncode)

    def wait_until(
        self,
        condition: Callable[[], bool],
        what: str,
        seconds: float = DEADLINE_S,
        every: float = 0.01,
    ) -> None:
        """``until``, while the driver runs; fail where it ends before."""

        def come() -> bool:
            ended = self.has_ended
            if condition():
                return True
            assert not ended, f"the driver has ended before {what}:\n{self.log[-6000:]}"
            return False

        until(come, what, seconds, every)

    def kill(self) -> None:
        """SIGKILL to every process of it; returns when none is left."""
        # The driver and its JVM first, at once: a JVM that sees its worker die reacts to it while we
        # look for the others.
        if not self.has_ended:
            os.killpg(self._popen.pid, signal.SIGKILL)
        while members := self.members():
            _signal(members, signal.SIGKILL)
            psutil.wait_procs(members, timeout=1.0)
        self._popen.wait()
        if self._id is not None:
            REAPER.unregister(self._id)

    def stop(self) -> None:
        """SIGSTOP: it stands still with all of its processes, and knows nothing of it."""
        os.killpg(self._popen.pid, signal.SIGSTOP)
        _signal(self.members(), signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        _signal(self.members(), signal.SIGCONT)

    def members(self) -> list[psutil.Process]:
        found = []
        for pid in psutil.pids():
            try:
                if os.getsid(pid) == self._popen.pid:
                    process = psutil.Process(pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
            except (ProcessLookupError, PermissionError, psutil.Error):
                continue
        return found


class Driver(Session):
    """One driver that runs ``stream_files.py``: the driver, its JVM, the Python daemon and its workers.

    A job whose ``spark.master`` is a cluster's is submitted to it.

    Args:
        folder: for its settings and its log.
        url: of the target; travels in the environment.
        crash: arms a crash point, see ``abs_core.crash``.
    """

    def __init__(
        self, job: Job, folder: Path, url: str | None = None, crash: str | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        settings = folder / "settings.json"
        settings.write_text(job.to_json())
        python = interpreter()
        environment = {**os.environ, "PYSPARK_PYTHON": python, "ABS_LOG": "progress"}
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        if url is not None:
            environment["ABS_TEST_URL"] = url
        if crash is not None:
            environment["ABS_TEST_CRASH"] = crash
        command = [python, stream_files.__file__, str(settings)]
        if master := job.conf.get("spark.master"):
            submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
            command = [str(submit), "--master", master, *command[1:]]
        super().__init__(command, folder, environment, "driver.log")


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue
