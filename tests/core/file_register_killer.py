"""A process of its own, with no threads, that forks writers of a ``FileRegister`` and kills them.

python file_register_killer.py count FOLDER    several processes count to the same number
python file_register_killer.py kill FOLDER     writers die in the middle, again and again
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from abs_core.contracts import Conflict
from abs_core.model import JobState
from abs_core.registers import FileRegister

JOB, WRITERS, TIMES, KILLS = "job", 4, 40, 40


def raise_generation(folder: Path) -> int:
    """One change by compare-and-set; the generation that it led to."""
    store = FileRegister(folder)
    while True:
        stored = store.load(JOB)
        assert stored is not None
        raised = replace(stored.state, generation=stored.state.generation + 1)
        if not isinstance(store.compare_and_set(JOB, stored.version, raised), Conflict):
            return raised.generation


def count(folder: Path) -> int:
    for _ in range(TIMES):
        raise_generation(folder)
    return 0


def fork(what: object) -> int:
    child = os.fork()
    if child == 0:
        try:
            os._exit(what())  # type: ignore[operator]
        finally:
            os._exit(1)
    return child


def generation(folder: Path) -> int:
    stored = FileRegister(folder).load(JOB)
    assert stored is not None, "the register is gone"
    return stored.state.generation


def check_counting(folder: Path) -> None:
    children = [fork(lambda: count(folder)) for _ in range(WRITERS)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * WRITERS, codes
    assert generation(folder) == WRITERS * TIMES, f"{generation(folder)} of {WRITERS * TIMES}"


def check_killing(folder: Path) -> None:
    for _ in range(KILLS):
        receiving, sending = os.pipe()

        def write_and_tell(to: int = sending) -> int:
            while True:
                os.write(to, raise_generation(folder).to_bytes(4, "big"))

        before = generation(folder)
        child = fork(write_and_tell)
        os.close(sending)
        told = os.read(receiving, 4)
        time.sleep(random.random() * 0.02)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while more := os.read(receiving, 4096):
            told = (told + more)[-4:]
        os.close(receiving)
        acknowledged, found = int.from_bytes(told, "big"), generation(folder)
        assert acknowledged > before
        assert found in (acknowledged, acknowledged + 1), f"{found} after {acknowledged}"


if __name__ == "__main__":
    checks = {"count": check_counting, "kill": check_killing}
    where = Path(sys.argv[2])
    first = JobState("0" * 16, JOB, "target", "lineage", 0, "run")
    assert not isinstance(FileRegister(where).compare_and_set(JOB, None, first), Conflict)
    checks[sys.argv[1]](where)
