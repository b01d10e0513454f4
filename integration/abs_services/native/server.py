"""One native server process: launch, log, reaper, end."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from abs_core.errors import ConfigError, UnavailableError
from abs_services.paths import Account
from abs_services.processes import ProcessId, clean_environment, end_tree
from abs_services.readiness import await_ready
from abs_services.reaper import REAPER


class ServerProcess:
    """One server process that was started here.

    It ends when this Python process ends, however that ends, unless it is detached.

    Args:
        name: for messages.
        log: for the server's stdout and stderr; appended to over restarts.
        deadline_s: seconds to become ready.
    """

    def __init__(self, name: str, log: Path, *, deadline_s: float) -> None:
        self._name = name
        self._log = log
        self._deadline_s = deadline_s
        self._popen: subprocess.Popen[bytes] | None = None
        self._id: ProcessId | None = None
        self._log_start = 0

    @property
    def id(self) -> ProcessId | None:
        return self._id if self.is_running else None

    @property
    def is_running(self) -> bool:
        # poll() reaps: a zombie would count as alive for a server that looks at its lock file.
        return self._popen is not None and self._popen.poll() is None

    def launch(
        self, command: Sequence[str], *, account: Account | None, env: Mapping[str, str], cwd: Path
    ) -> None:
        """Start the process in a session of its own, so that Ctrl-C does not reach it."""
        with self._log.open("ab") as log:
            self._log_start = log.tell()
            self._popen = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=clean_environment(**env),
                start_new_session=True,
                **as_account(account),
            )
        self._id = ProcessId.of(self._popen.pid)
        if self._id is not None:
            REAPER.register(self._id)

    def detach(self) -> None:
        """Let the server outlive this Python process; this object then has none."""
        if self._id is None or not self.is_running:
            raise ConfigError(f"{self._name} does not run", remedy="start it first.")
        REAPER.unregister(self._id)
        assert self._popen is not None
        # Not waited for any more: else Python warns of a child that still runs.
        self._popen.returncode = 0
        self._popen = None

    def await_ready(self, is_ready: Callable[[], bool]) -> None:
        """Wait until ``is_ready()``; kill the server if it is late."""
        try:
            await_ready(
                self._name,
                is_ready=is_ready,
                is_running=lambda: self.is_running,
                said=self.said,
                deadline_s=self._deadline_s,
            )
        except UnavailableError:
            self.end()
            raise

    def end(self, signals: Sequence[int] = (), *, deadline_s: float = 30.0) -> None:
        """End the process and its descendants by these signals, at last by SIGKILL."""
        if self._popen is None or self._id is None:
            return
        if self.is_running:
            end_tree(self._id, signals, deadline_s=deadline_s)
        self._popen.wait()
        REAPER.unregister(self._id)

    def said(self) -> str:
        """The log since the launch."""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")


class RunAs(TypedDict, total=False):
    """The arguments by which ``subprocess`` runs a program as another user."""

    user: int
    group: int
    extra_groups: list[int]


def as_account(account: Account | None) -> RunAs:
    """The arguments for an account; none for the caller's own."""
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}
