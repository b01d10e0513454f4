"""Processes of older releases: their own code, from a zip of its packages beside this file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RELEASES = sorted(HERE.glob("*.zip"))
_ROOTS = ("", "clients", "sinks", "sources", "stores", "kit", "integration", "engine", "tools")


def environment(release: Path) -> dict[str, str]:
    """The environment in which a process imports the packages of that release."""
    path = os.pathsep.join(str(release / root) for root in _ROOTS)
    return {**os.environ, "PYTHONPATH": path}


class OldJob:
    """Lives jobs by the code of one release; its end is the end of the process.

    Each life is a process of its own, forked from one that has imported the sinks.
    """

    def __init__(self, release: Path) -> None:
        self.release = release

    def __enter__(self) -> OldJob:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "job.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(self.release),
        )
        assert self._process.stdout is not None
        told = self._process.stdout.readline()
        if not told.startswith(str(self.release)):
            self.__exit__()  # or a test that comes later is blamed for the process and its pipes
            raise AssertionError(f"another code was imported: {told}")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def live(self, life: Mapping[str, Any]) -> int:
        """How the life ended: an exit code, or minus a signal."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(life) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that forks lives has died"
        return int(answer)
