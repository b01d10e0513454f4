"""The reaper: a session's servers end and its folders are deleted, even if it is SIGKILLed.

A session is a Python process that starts servers. One small process beside it holds the list of
what belongs to it, and ends all of that when its pipe closes or its parent is gone. Unlike
PR_SET_PDEATHSIG it does not depend on the thread that started a server, works on macOS, ends
containers, and deletes folders. Servers of ``abs up`` are unregistered once the state file names them.

Limit: if it is itself SIGKILLed before the session, servers stay.
"""

from __future__ import annotations

import atexit
import base64
import os
import pickle
import select
import subprocess
import sys
import threading
from pathlib import Path

from abs_services.paths import delete
from abs_services.processes import ProcessId, end_tree

_PARENT_CHECK_S = 1.0

Thing = ProcessId | Path | str
"""A process, a folder or file that is to be deleted, or a container's id."""


class Reaper:
    """The session's end of the pipe. Thread-safe; starts its process at the first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: subprocess.Popen[str] | None = None
        self._owner = 0

    def register(self, thing: Thing) -> None:
        self._send("add", thing)

    def unregister(self, thing: Thing) -> None:
        self._send("discard", thing)

    def _send(self, verb: str, thing: Thing) -> None:
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
            message = base64.b64encode(pickle.dumps((verb, thing))).decode()
            self._holder.stdin.write(f"{message}\n")
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
    registered: set[Thing] = set()
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
            verb, thing = pickle.loads(base64.b64decode(line))  # noqa: S301 - our own process wrote it
            getattr(registered, verb)(thing)
    _end(registered)


def _end(registered: set[Thing]) -> None:
    for process in [thing for thing in registered if isinstance(thing, ProcessId)]:
        end_tree(process)
    if containers := [thing for thing in registered if isinstance(thing, str)]:
        from abs_services.containers.engine import remove

        for container in containers:
            remove(container)
    for path in [thing for thing in registered if isinstance(thing, Path)]:
        delete(path)


if __name__ == "__main__":
    hold(sys.stdin.fileno(), int(sys.argv[1]))
