"""``python -m abs_core.testing.fork_server`` forks one job process for each line on standard input.

It prints each exit status. Modules are imported only once, so that a process takes milliseconds.
"""

from __future__ import annotations

import base64
import os
import pickle
import sys
import traceback

from abs_core.errors import AbsError, HandleLostError
from abs_core.testing.case import rows
from abs_core.testing.crash_child import REFUSED, Life
from abs_core.testing.harness import batch_of


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


def main() -> None:
    """Read lives (pickled, base64, one a line) and answer with exit codes; -9 is a kill."""
    batch_of(
        rows(0, 1)
    ).to_pylist()  # imports what pyarrow loads lazily, pandas: once, not per life
    for line in sys.stdin:
        life = pickle.loads(base64.b64decode(line))  # noqa: S301 - our own parent's
        print(os.waitstatus_to_exitcode(_fork(life)), flush=True)


if __name__ == "__main__":
    main()
