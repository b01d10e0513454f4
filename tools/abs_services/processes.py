"""Processes, identified by pid and start time, so that a reused pid is never mistaken.

All ending of processes in this package goes through :class:`ProcessId`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from abs_core.errors import UnavailableError
from abs_services.paths import shared_folder

# Below the range from which Linux and macOS take ports for outgoing connections (32768 and up):
# a server that is restarted on its port must not find it taken by somebody's client socket.
_PORTS = range(15_000, 30_000)
_START_TOLERANCE_S = 0.5
_POLL_S = 0.01

_mine: set[int] = set()
"""Ports that this process has drawn."""


@dataclass(frozen=True)
class ProcessId:
    """A pid and its start time (seconds since the epoch, as psutil gives it)."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The identity of the process with this pid now, if any."""
        try:
            return cls(pid, psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            return None

    @classmethod
    def of_child(cls, child: subprocess.Popen[bytes]) -> ProcessId:
        """The identity of a child that was not waited for; it keeps its pid until then."""
        return cls(child.pid, psutil.Process(child.pid).create_time())

    def process(self) -> psutil.Process | None:
        """The process; None if it has ended, is a zombie, or the pid is reused."""
        try:
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.started) > _START_TOLERANCE_S:
                return None
            return None if process.status() == psutil.STATUS_ZOMBIE else process
        except psutil.NoSuchProcess:
            return None

    @property
    def is_alive(self) -> bool:
        return self.process() is not None


def end_tree(root: ProcessId, signals: Sequence[int] = (), *, deadline_s: float = 30.0) -> None:
    """End a process and all of its descendants; returns when none is left.

    Sends the root one signal after the other, with ``deadline_s`` seconds for each, then SIGKILL to
    the rest. Raises UnavailableError if a process outlives SIGKILL (uninterruptible sleep).
    """
    process = root.process()
    if process is None:
        return
    family = _family(process)
    for signum in signals:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signum)
        with contextlib.suppress(UnavailableError):
            await_gone(family, deadline_s=deadline_s)
            return
    # Stopped before it is killed, so that it can neither start nor restart a child meanwhile.
    with contextlib.suppress(psutil.NoSuchProcess):
        process.suspend()
    family = list({*family, *_family(process)})
    for member in [process, *family]:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    await_gone(family, deadline_s=deadline_s)


@contextlib.contextmanager
def frozen(root: ProcessId) -> Iterator[None]:
    """A process and all of its descendants stand still inside the block (SIGSTOP)."""
    process = root.process()
    # Listed again after the first round: until the root stands still, it may start children.
    family: list[psutil.Process] = []
    try:
        for _ in range(2):
            family = [] if process is None else _family(process)
            for member in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.suspend()
        yield
    finally:
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.resume()


def _family(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return [root]


def await_gone(processes: Sequence[psutil.Process], *, deadline_s: float) -> None:
    """Wait until all have ended (or are zombies); UnavailableError at the deadline."""
    # Polled, because those that are not our own children cannot be waited for.
    alive = list(processes)
    give_up = time.monotonic() + deadline_s
    while alive := [process for process in alive if not _has_ended(process)]:
        if time.monotonic() > give_up:
            raise UnavailableError(
                f"process {alive[0].pid} has not ended {deadline_s:.0f} s after it was told to",
                remedy="look at its state with ps; a hung disk is the usual cause.",
            )
        time.sleep(_POLL_S)


def _has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def free_port() -> int:
    """A free TCP port of 127.0.0.1, which nobody else gets by this function while this process lives.

    A server binds it later, and may be down for a while. Other programs can take it.
    """
    # Not the seeded generator: tests seed that one, and would all get the same port.
    draw = random.SystemRandom()
    for _ in range(200):
        port = draw.choice(_PORTS)
        if _reserved(port) and _is_free(port):  # another cannot bind it between the two
            return port
    raise UnavailableError(
        "no free TCP port was found on 127.0.0.1", remedy="end servers that are not needed."
    )


def free_ports(count: int) -> list[int]:
    """``count`` different ports that are free now."""
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _reserved(port: int) -> bool:
    """Whether this process has it now, and had it not before; the lock ends with the process."""
    file = _ports_file()
    try:
        # Each port is a byte of the file; a process loses all of its locks when it closes it once.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:  # another process has it
        return False
    if port in _mine:
        return False
    _mine.add(port)
    return True


@cache
def _ports_file() -> int:
    """A file descriptor that stays open until the process ends."""
    return os.open(shared_folder() / "ports", os.O_RDWR | os.O_CREAT, 0o600)


def run_tool(name: str, command: Sequence[str], folder: Path, **more: Any) -> None:
    """Run a program that prepares a server's folder.

    Args:
        more: further arguments for ``subprocess.run``.

    Raises:
        UnavailableError: it failed; the message has the last lines that it said.
    """
    options = {"cwd": folder, "env": clean_environment(), **more}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise UnavailableError(
            f"{name} failed in {folder}: {' | '.join(said[-3:])}",
            remedy="act on what it says; an empty, writable folder is needed.",
        )


def clean_environment(**extra: str) -> dict[str, str]:
    """A minimal environment for a server, without settings and secrets of the caller."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC", **extra}
