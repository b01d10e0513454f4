"""The command ``abs`` many times: forked from a process that has imported it, with its own path.

A command is a process of its own, as a user's is; what it imports (0.35 s of CPU), it finds there.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import IO, NoReturn, Self


class ForkedCommand:
    """A process with ``abs`` loaded, which forks one for each call. Use as a context manager.

    Args:
        path: ``PYTHONPATH`` of the process, with what the command is to find.
    """

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, "PYTHONPATH": str(path), "COLUMNS": "200"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # its input ends, and so does it

    def __call__(self, folder: Path, *arguments: str) -> tuple[int, str]:
        """Run the command in a folder; its exit code, and what it said on both channels."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(folder), arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that forks commands has ended"
        code, said = json.loads(answer)
        return code, said


def serve() -> None:
    """Fork a command for each line of the standard input."""
    import pyarrow.dataset  # noqa: F401

    import abs_audit  # noqa: F401
    import abs_cli.main  # noqa: F401

    for line in sys.stdin:
        folder, arguments = json.loads(line)
        with tempfile.TemporaryFile() as said:
            child = os.fork()
            if child == 0:
                _run(folder, arguments, said)
            _, status = os.waitpid(child, 0)
            said.seek(0)
            answer = os.waitstatus_to_exitcode(status), said.read().decode()
        print(json.dumps(answer), flush=True)


def _run(folder: str, arguments: list[str], said: IO[bytes]) -> NoReturn:
    """As ``python -m abs_cli`` in that folder; then end at once, without what it had from the start."""
    os.chdir(folder)
    for channel in (1, 2):
        os.dup2(said.fileno(), channel)
    sys.argv = ["abs", *arguments]
    code: object = 0
    try:
        runpy.run_module("abs_cli", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001  # its end is told as Python would
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    serve()
