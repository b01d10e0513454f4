"""The reaper: a session's servers end and its folders are deleted, even if it is SIGKILLed.

A session is a Python process that starts servers. One small process beside it holds the list of
what belongs to it, and ends all of that when its pipe closes or its parent is gone. Unlike
PR_SET_PDEATHSIG it does not depend on the thread that started a server, works on macOS, ends
containers, and deletes folders. Servers of ``abs up`` are unregistered once the state file names them.

Limit: if it is itself SIGKILLed before the session, servers stay.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from abs_services.paths import delete
from abs_services.processes import ProcessId, end_tree

_PARENT_CHECK_S = 1.0


class Reaper:
    """The session's end of the pipe. Thread-safe; starts its process at the first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: subprocess.Popen[str] | None = None
        self._owner = 0

    def register(self, process: ProcessId) -> None:
        self._send({"register": asdict(process)})

    def unregister(self, process: ProcessId) -> None:
        self._send({"unregister": asdict(process)})

    def register_path(self, path: Path) -> None:
        """Register a folder or file that is to be deleted."""
        self._send({"register_path": str(path)})

    def register_container(self, container: str) -> None:
        self._send({"register_container": container})

    def unregister_container(self, container: str) -> None:
        self._send({"unregister_container": container})

    def _send(self, message: dict[str, object]) -> None:
        with self._lock:
            # A forked child must not write into its parent's pipe: it has a reaper of its own.
            if self._holder is None or self._owner != os.getpid():
                self._holder = subprocess.Popen(
                    [sys.executable, "-m", "abs_services.reaper", str(os.getpid())],
                    stdin=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                    close_fds=True,
                )
                self._owner = os.getpid()
                atexit.register(self._let_go, self._holder, self._owner)
            assert self._holder.stdin is not None
            self._holder.stdin.write(json.dumps(message) + "\n")
            self._holder.stdin.flush()

    @staticmethod
    def _let_go(holder: subprocess.Popen[str], owner: int) -> None:
        if owner == os.getpid():
            assert holder.stdin is not None
            holder.stdin.close()
            holder.wait()


REAPER = Reaper()


def hold(commands: int, parent: int) -> None:
    """Obey commands until the pipe closes or the parent is gone, then end what is registered."""
    registered = Registered()
    rest = b""
    while os.getppid() == parent:
        if not select.select([commands], [], [], _PARENT_CHECK_S)[0]:
            continue
        # Unbuffered: what a buffered reader holds back, select cannot see.
        read = os.read(commands, 65_536)
        if not read:
            break
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            registered.obey(json.loads(line))
    registered.end()


@dataclass
class Registered:
    """What ends with the session."""

    processes: set[ProcessId] = field(default_factory=set)
    containers: set[str] = field(default_factory=set)
    paths: list[Path] = field(default_factory=list)

    def obey(self, message: dict[str, Any]) -> None:
        for verb, value in message.items():
            match verb:
                case "register":
                    self.processes.add(ProcessId(**value))
                case "unregister":
                    self.processes.discard(ProcessId(**value))
                case "register_container":
                    self.containers.add(value)
                case "unregister_container":
                    self.containers.discard(value)
                case "register_path":
                    self.paths.append(Path(value))

    def end(self) -> None:
        for process in self.processes:
            end_tree(process)
        if self.containers:
            from abs_services.containers.engine import remove

            for container in self.containers:
                remove(container)
        for path in self.paths:
            delete(path)


if __name__ == "__main__":
    hold(sys.stdin.fileno(), int(sys.argv[1]))
