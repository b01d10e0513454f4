"""The reaper: a session's servers end and its folders are deleted, even if it is SIGKILLed.

A session is a Python process that starts servers. One small process beside it holds the list of
what belongs to it, and ends all of that when its pipe closes or its parent is gone. Unlike
PR_SET_PDEATHSIG it does not depend on the thread that started a server, works on macOS, ends
containers, and deletes folders. Servers of ``abs up`` are unregistered once the state file names them.

Limit: if it is itself SIGKILLed before the session, servers stay.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from abs_services.paths import delete
from abs_services.processes import ProcessId, end_tree

_PARENT_CHECK_S = 1.0

Thing = ProcessId | Path | str
"""A process, a folder or file that is to be deleted, or a container's id."""


class Reaper:
    """The session's end of the pipe. Thread-safe; starts its process at the first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._commands: Connection[Any, Any] | None = None
        self._owner = 0

    def register(self, thing: Thing) -> None:
        self._send("add", thing)

    def unregister(self, thing: Thing) -> None:
        self._send("discard", thing)

    def _send(self, verb: str, thing: Thing) -> None:
        with self._lock:
            # A forked child must not write into its parent's pipe: it has a reaper of its own.
            if self._commands is None or self._owner != os.getpid():
                theirs, self._commands = Pipe(duplex=False)
                command = [sys.executable, "-m", "abs_services.reaper", str(os.getpid())]
                holder = subprocess.Popen(command, stdin=theirs.fileno(), start_new_session=True)
                theirs.close()
                self._owner = os.getpid()
                atexit.register(self._let_go, holder, self._commands, self._owner)
            self._commands.send((verb, thing))

    @staticmethod
    def _let_go(
        holder: subprocess.Popen[bytes], commands: Connection[Any, Any], owner: int
    ) -> None:
        if owner == os.getpid():
            commands.close()
            holder.wait()


REAPER = Reaper()


def hold(commands: Connection[Any, Any], parent: int) -> None:
    """Obey commands until the pipe closes or the parent is gone, then end what is registered."""
    registered: set[Thing] = set()
    # The second one where the parent died in the middle of a command.
    with contextlib.suppress(EOFError, OSError):
        while os.getppid() == parent:
            if commands.poll(_PARENT_CHECK_S):
                verb, thing = commands.recv()
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
    hold(Connection(sys.stdin.fileno(), writable=False), int(sys.argv[1]))
