"""One native server process: launch, log, reaper, end."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from abs_services.paths import Account
from abs_services.processes import ProcessId, clean_environment, end_tree
from abs_services.reaper import REAPER


@dataclass(frozen=True)
class Command:
    """How a server process is launched."""

    argv: Sequence[str]
    cwd: Path
    account: Account | None = None
    env: Mapping[str, str] = field(default_factory=dict)


class ServerProcess:
    """One server process, started here in a session of its own, so that Ctrl-C does not reach it.

    It ends when this Python process ends, however that ends, unless it is detached.

    Args:
        log: for the server's stdout and stderr; appended to over restarts.
    """

    def __init__(self, command: Command, log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self._log_start = output.tell()
            self._popen = subprocess.Popen(
                list(command.argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=command.cwd,
                env=clean_environment(**command.env),
                start_new_session=True,
                **as_account(command.account),
            )
        self.id = ProcessId.of_child(self._popen)
        REAPER.register(self.id)

    @property
    def is_running(self) -> bool:
        # poll() reaps: a zombie would count as alive for a server that looks at its lock file.
        return self._popen.poll() is None

    def detach(self) -> None:
        """Let the server outlive this Python process; this object is of no use after that."""
        REAPER.unregister(self.id)
        # Not waited for any more: else Python warns of a child that still runs.
        self._popen.returncode = 0

    def end(self, signals: Sequence[int] = (), *, deadline_s: float = 30.0) -> None:
        """End the process and its descendants by these signals, at last by SIGKILL."""
        if self.is_running:
            end_tree(self.id, signals, deadline_s=deadline_s)
        self._popen.wait()
        REAPER.unregister(self.id)

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
