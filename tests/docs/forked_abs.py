"""Runs ``abs`` as often as it is asked to, each time in a process forked behind the imports.

A line on stdin is a JSON list of the working folder and the arguments; a line on stdout is the JSON of
the exit code and of what was printed. Nothing of the sink is imported before the fork.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
import tempfile
import traceback
from typing import NoReturn

from typer.main import get_command

import abs_audit  # noqa: F401 - most of what a command takes is the import of this and the next
from abs_cli.entry import main
from abs_cli.main import app


def serve() -> None:
    """Until the end of stdin."""
    get_command(app)  # imports what typer loads lazily
    gc.freeze()  # a forked process that looks at all that is imported copies it
    for line in sys.stdin:
        folder, *arguments = json.loads(line)
        with tempfile.TemporaryFile() as said:
            child = os.fork()
            if child == 0:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                os.chdir(folder)
                run(arguments)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said.seek(0)
            print(json.dumps([code, said.read().decode()]), flush=True)
    gc.unfreeze()  # before the interpreter ends, where C++ modules report what nobody has collected


def run(arguments: list[str]) -> NoReturn:
    """End as the interpreter does, but for the freeing of all modules, which takes as long."""
    code = 1
    try:
        sys.argv = ["abs", *arguments]
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:  # noqa: BLE001 - the end of a process: what it was goes to the one who asks
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
