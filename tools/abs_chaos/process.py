"""The job's processes (Python driver, JVM, Python workers), started and killed as one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from abs_core.errors import UnavailableError
from abs_services.processes import ProcessId
from abs_services.reaper import REAPER

_DEADLINE_S = 30.0


class JobProcess:
    """One run of the job, in a session of its own.

    Parents die before their children here, and PySpark's workers make process groups of their own,
    so the session identifies all of them. It ends when this Python process ends, however that ends.

    Args:
        command: of the driver.
        environment: all of its variables.
        folder: working directory.
        log: for the job's output; appended to over runs.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path
    ) -> None:
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        # The driver counts also where it is killed before anybody has looked.
        self._seen: set[int] = {self._popen.pid}
        self._id = ProcessId.of_child(self._popen)
        REAPER.register(self._id)

    @property
    def has_ended(self) -> bool:
        """Whether the driver has ended by itself. It is not reaped, so its pid is not reused."""
        return psutil.Process(self._popen.pid).status() == psutil.STATUS_ZOMBIE

    def processes(self) -> int:
        """The number of the job's processes now."""
        self._seen = {process.pid for process in self._members()}
        return len(self._seen)

    def kill(self) -> int:
        """SIGKILL every process of the job; returns when none is left. Idempotent.

        Returns their number, including those that ``processes()`` saw last. Raises UnavailableError
        if one outlives SIGKILL (uninterruptible sleep).
        """
        if self._popen.returncode is not None:
            return 0  # reaped: the pid may be another's now
        # The driver and its JVM share a process group: one call ends both at one instant.
        os.killpg(self._popen.pid, signal.SIGKILL)
        give_up = time.monotonic() + _DEADLINE_S
        while alive := self._members():
            if time.monotonic() > give_up:
                raise UnavailableError(
                    f"Process {alive[0].pid} of the job outlives SIGKILL.",
                    remedy="look at its state with ps; a hung disk is the usual cause.",
                )
            for process in alive:
                self._seen.add(process.pid)
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            time.sleep(0.002)
        self._popen.wait()
        REAPER.unregister(self._id)
        return len(self._seen)

    def end(self) -> int:
        """The exit code of an ended driver, when nothing of the job is left."""
        self.kill()
        return self._popen.wait()

    def _members(self) -> list[psutil.Process]:
        """All living processes of the session."""
        members = []
        for pid in psutil.pids():
            try:
                if os.getsid(pid) != self._popen.pid:
                    continue
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    members.append(process)
            except (ProcessLookupError, PermissionError, psutil.Error):
                continue
        return members
