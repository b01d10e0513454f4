"""A leash: servers of a test session end, and their folders go, even if the session is SIGKILLed.

One small process per session holds the list of what belongs to it. It ends all of that when its
pipe closes or when its parent is gone. Unlike PR_SET_PDEATHSIG it does not depend on the thread
that started the server, works on macOS too, and can delete folders. Servers of ``abs up`` are on
no leash: they are meant to live on; their state file is how they are found.

What it does not do: it dies if it is itself SIGKILLed before the session; then servers stay.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shutil
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from abs_services.processes import ProcessId, kill_tree

_PARENT_CHECK_S = 1.0


class Leash:
    """The session's end of the pipe. Thread-safe; starts its process at the first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: subprocess.Popen[str] | None = None
        self._owner = 0

    def tie(self, process: ProcessId) -> None:
        self._send({"tie": asdict(process)})

    def untie(self, process: ProcessId) -> None:
        self._send({"untie": asdict(process)})

    def tie_folder(self, folder: Path) -> None:
        self._send({"tie_folder": str(folder)})

    def _send(self, message: dict[str, object]) -> None:
        with self._lock:
            # A forked child must not write into its parent's pipe: it holds a leash of its own.
            if self._holder is None or self._owner != os.getpid():
                self._holder = subprocess.Popen(
                    [sys.executable, "-m", "abs_services.leash", str(os.getpid())],
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


LEASH = Leash()


def hold(commands: int, parent: int) -> None:
    """Obeys commands until the pipe closes or the parent is gone, then ends what is tied."""
    tied: set[ProcessId] = set()
    folders: list[Path] = []
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
            _obey(json.loads(line), tied, folders)
    for process in tied:
        kill_tree(process)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _obey(message: dict[str, Any], tied: set[ProcessId], folders: list[Path]) -> None:
    for verb, value in message.items():
        match verb:
            case "tie":
                tied.add(ProcessId(**value))
            case "untie":
                tied.discard(ProcessId(**value))
            case "tie_folder":
                folders.append(Path(value))


if __name__ == "__main__":
    hold(sys.stdin.fileno(), int(sys.argv[1]))
