"""What the three native servers have in common: one process, its log, its leash, its end."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from tenacity import RetryError, retry, retry_if_result, stop_after_delay, wait_fixed

from abs_core.errors import UnavailableError
from abs_services.leash import LEASH
from abs_services.places import Account
from abs_services.processes import ProcessId, clean_environment, kill_tree

_LOG_TAIL_LINES = 12


class ServerProcess:
    """One server process that was started here, with what is needed to end it reliably.

    Args:
        name: for messages.
        log: file that takes the server's stdout and stderr; appended to over restarts.
        leashed: whether the server ends when this Python process ends, however it ends.
    """

    def __init__(self, name: str, log: Path, *, leashed: bool) -> None:
        self._name = name
        self._log = log
        self._leashed = leashed
        self._popen: subprocess.Popen[bytes] | None = None
        self._id: ProcessId | None = None

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
        """Starts the process in a session of its own, so that Ctrl-C does not reach it."""
        with self._log.open("ab") as log:
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
        if self._leashed and self._id is not None:
            LEASH.tie(self._id)

    def await_ready(self, is_ready: Callable[[], bool], *, deadline_s: float) -> None:
        """Waits until ``is_ready()``; kills what was started where it ends or is late instead."""

        @retry(
            retry=retry_if_result(lambda done: not done),
            stop=stop_after_delay(deadline_s),
            wait=wait_fixed(0.05),
        )
        def poll() -> bool:
            return not self.is_running or is_ready()

        try:
            poll()
        except RetryError as error:
            self.kill()
            raise self._unavailable(f"is not ready after {deadline_s:.0f} s") from error
        if not self.is_running:
            raise self._unavailable("ended while it started")

    def end(self, signals: Sequence[int], *, deadline_s: float) -> None:
        """Sends one signal after the other, each with a deadline; SIGKILL at the end."""
        for signum in signals:
            if not self.is_running or self._popen is None:
                break
            self._popen.send_signal(signum)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(deadline_s)
        self.kill()

    def kill(self) -> None:
        """SIGKILL for the process and its descendants; returns when none is left."""
        if self._popen is None or self._id is None:
            return
        if self.is_running:
            kill_tree(self._id)
        self._popen.wait()
        if self._leashed:
            LEASH.untie(self._id)

    def _unavailable(self, what: str) -> UnavailableError:
        lines = self._log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        return UnavailableError(
            f"{self._name} {what}; the end of its log {self._log} says:\n" + "\n".join(lines),
            remedy="act on what the log says, then start again.",
        )


class RunAs(TypedDict, total=False):
    """The arguments by which ``subprocess`` runs a program as another user."""

    user: int
    group: int
    extra_groups: list[int]


def as_account(account: Account | None) -> RunAs:
    """Those arguments for an account; none of them for the caller's own."""
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def delete_folder(folder: Path) -> None:
    """Deletes a temporary server's folder. What cannot be deleted stays, in silence."""
    shutil.rmtree(folder, ignore_errors=True)
