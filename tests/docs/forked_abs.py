"""Runs ``abs`` as often as it is asked to, each time in a process forked behind the imports.

A line on stdin is a JSON list of arguments; a line on stdout is the JSON of the exit code and of what
was printed. Nothing of the sink is imported before the fork.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

import abs_audit  # noqa: F401 - most of what a command takes is the import of this and the next
import abs_cli.main  # noqa: F401
from abs_cli.entry import main


def serve() -> None:
    """Until the end of stdin; in the forked process it returns, and the command follows."""
    for line in sys.stdin:
        with tempfile.TemporaryFile() as said:
            child = os.fork()
            if child == 0:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                sys.argv = ["abs", *json.loads(line)]
                return
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said.seek(0)
            print(json.dumps([code, said.read().decode()]), flush=True)
    sys.exit()


if __name__ == "__main__":
    serve()
    main()
