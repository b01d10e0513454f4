"""The process of ``ForkServer``: it forks one job process for each life that it is sent.

Modules are imported only once, so that a process takes milliseconds.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection

from abs_core.errors import AbsError, HandleLostError
from abs_testing.case import rows
from abs_testing.crash_child import REFUSED, Life
from abs_testing.harness import batch_of


def serve(lives: Connection) -> None:
    """Answer each life with its exit code, which is -9 after a kill."""
    batch_of(rows(0, 1)).to_pylist()  # imports what pyarrow loads lazily: once, not per life
    with suppress(EOFError):
        while True:
            lives.send(os.waitstatus_to_exitcode(_fork(lives.recv())))


def _fork(life: Life) -> int:
    """Live in a child process; its wait status."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = life.live()
        except AbsError as error:
            traceback.print_exc()
            code = REFUSED if error.remedy and not isinstance(error, HandleLostError) else 1
        except Exception:  # noqa: BLE001 - the end of a process: what it was goes to the parent
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitpid(child, 0)[1]
