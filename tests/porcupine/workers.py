"""Processes that call a register at random until they are killed: forked from one that has loaded it.

``python -m tests.porcupine.workers`` reads requests from its standard input, one JSON object a line,
and answers each with the pid of a new worker. Its workers end with it. With ``serve SOCKET`` it keeps
a ``MemoryRegister`` for them instead.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any, Self

from abs_core.contracts import RegisterStore
from abs_core.errors import AbsError
from abs_core.registers import MemoryRegister
from abs_testing.case import within
from tests.porcupine.history import Notes
from tests.porcupine.planted import PLANTED

ROOT = Path(__file__).parents[2]
LOADS = 0.5
"""Share of loads among the calls."""
UNHEARD = 0.05
"""Share of compare-and-sets whose answer is thrown away, where no relay does it."""
AUTHKEY = b"tests"


class Manager(BaseManager):
    """Shows a ``MemoryRegister`` to other processes."""


def opened(address: str) -> RegisterStore:
    """The register at an address: ``memory:SOCKET``, ``planted:NAME:FOLDER``, or a user's."""
    scheme, _, rest = address.partition(":")
    if scheme == "memory":
        Manager.register("shared")
        manager = Manager(rest, AUTHKEY)
        manager.connect()
        store: RegisterStore = manager.shared()  # type: ignore[attr-defined]
        return store
    if scheme == "planted":
        name, _, folder = rest.partition(":")
        return PLANTED[name](folder)
    from abs_sinks.register_at import open_register

    return open_register(address)


def work(
    address: str, jobs: Sequence[str], folder: str, process: str, seed: int, loses: bool
) -> None:
    """Call the register at random, until the process that forked this one has gone."""
    parent = os.getppid()
    rng = random.Random(seed)
    notes = Notes(opened(address), Path(folder), process)
    versions: dict[str, str | None] = dict.fromkeys(jobs)
    while os.getppid() == parent:
        job = rng.choice(jobs)
        with suppress(AbsError):  # no answer: the call has no end
            if rng.random() < LOADS:
                versions[job] = notes.load(job)
                continue
            heard = not loses or rng.random() > UNHEARD
            version = notes.compare_and_set(job, versions[job], heard=heard)
            if heard and version is not None:
                versions[job] = version


def main() -> None:
    """Fork a worker for each line."""
    # What workers need is loaded once.
    for module in sys.argv[1:]:
        __import__(module)
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                work(**request)
            except BaseException:  # noqa: BLE001  # told by the file
                failed = Path(request["folder"]) / f"{request['process']}.failed"
                failed.write_text(traceback.format_exc())
            finally:
                os._exit(0)
        print(pid, flush=True)


def serve(socket: str) -> None:
    """Keep a register in memory, for other processes."""
    store = MemoryRegister()
    Manager.register("shared", callable=lambda: store)
    Manager(socket, AUTHKEY).get_server().serve_forever()


class Forker:
    """The process that forks workers, and those of them that live. A context manager.

    Args:
        modules: loaded before it forks.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.porcupine.workers", *modules],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.alive: list[int] = []
        """Workers' pids; one that has ended keeps its pid until the forking process ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_all()
        self._process.communicate()

    def fork(self, **request: object) -> int:
        """A new worker; see ``work``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that forks workers has ended"
        self.alive.append(int(answer))
        return int(answer)

    def kill(self, pid: int) -> None:
        """SIGKILL for a worker."""
        os.kill(pid, signal.SIGKILL)
        self.alive.remove(pid)

    def end_all(self) -> None:
        """SIGKILL for all workers."""
        for pid in list(self.alive):
            self.kill(pid)


class Served:
    """A ``MemoryRegister`` in a process of its own. A context manager."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.address = f"memory:{socket}"

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.porcupine.workers", "serve", str(self._socket)]
        self._process = subprocess.Popen(command, cwd=ROOT)
        assert within(30, self._socket.exists), "the process with the register does not answer"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    else:
        main()
