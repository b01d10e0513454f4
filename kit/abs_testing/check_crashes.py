"""Kills a job at every crash point, by SIGKILL, and checks that its target is exact in the end.

Each passage of each point is tried: the first, the second, and so on, until the process is no longer
killed. Then pairs: a crash, and a crash during its recovery.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from signal import SIGKILL

from abs_core.crash import CrashPoint
from abs_core.errors import AbsError, HandleLostError
from abs_testing.case import Case, rows, written
from abs_testing.check_changes import ChangingOpener
from abs_testing.crash_child import DONE, EPOCHS, REFUSED, Life
from abs_testing.harness import Harness, Opener, batch_of


def serve(lives: Connection) -> None:
    """Run in the process of ``ForkServer``: answer each life with its exit code, -9 after a kill."""
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


class ForkServer:
    """A process that forks the lives of the job.

    Use as a context manager; its end is the end of the process.
    """

    def __enter__(self) -> ForkServer:
        context = get_context("spawn")
        self._lives, lives = context.Pipe()
        self._process = context.Process(target=serve, args=(lives,), daemon=True)
        self._process.start()
        lives.close()  # its own end: it hears of the end of this process, and this one of its own
        return self

    def __exit__(self, *_: object) -> None:
        self._lives.close()
        self._process.join()

    def live(self, life: Life) -> int:
        """Run one process of the job; its exit code, or minus the signal that killed it.

        Raises OSError or EOFError if the fork server has died.
        """
        self._lives.send(life)
        return int(self._lives.recv())


@dataclass(frozen=True, slots=True)
class Killed:
    """The result of a crash check.

    Args:
        points: how often each point killed a process.
        histories: number of jobs that were run to their end.
    """

    points: Counter[CrashPoint]
    histories: int

    def __add__(self, other: Killed) -> Killed:
        return Killed(self.points + other.points, self.histories + other.histories)


def check_crashes(
    opener: Opener,
    fork_server: ForkServer,
    passages: int = 1000,
    points: Iterable[CrashPoint] = tuple(CrashPoint),
) -> Killed:
    """Kill a job at every passage of every point, once in a job.

    Args:
        passages: most passages of each point to try.

    Raises:
        AssertionError: a row is missing, duplicated or visible early, or something is left behind.
    """
    killed = Killed(Counter(), 0)
    for point in points:
        for nth in range(1, passages + 1):
            (died,) = _history(opener, fork_server, f"{point}#{nth}")
            killed += Killed(Counter({point: int(died)}), 1)
            if not died:
                break
    return killed


def check_crash_pairs(
    opener: Opener,
    fork_server: ForkServer,
    pairs: Iterable[tuple[CrashPoint, CrashPoint]] | None = None,
) -> Killed:
    """Kill a job at one point, and its recovery at another (or the same), for each pair.

    Args:
        pairs: default: all.

    Raises:
        AssertionError: as ``check_crashes``.
    """
    killed = Killed(Counter(), 0)
    for first, second in product(CrashPoint, CrashPoint) if pairs is None else pairs:
        deaths = _history(opener, fork_server, first, second)
        died = Counter(p for p, died in zip((first, second), deaths, strict=False) if died)
        killed += Killed(died, 1)
    return killed


def check_changed_crashes(
    opener: ChangingOpener,
    fork_server: ForkServer,
    changes: Iterable[tuple[str, str, CrashPoint]],
    *,
    finds: bool = True,
    may_refuse: bool = False,
) -> Killed:
    """Kill a job in one way of writing, then in another, and finish it in the first way.

    Args:
        changes: the first way, the other, and the point at which both processes die.
        finds: whether each way looks where the others left what is in doubt; else only the last run
            by the first way, after one by the other, leaves nothing behind.
        may_refuse: whether a way may refuse the job, by an error that says what to do; the job then
            continues in the other way.

    Raises:
        AssertionError: as ``check_crashes``; or a reader does not reach the end.
    """
    killed = Killed(Counter(), 0)
    for first, other, point in changes:
        ends = (DONE, REFUSED) if may_refuse else (DONE,)
        deaths = _changed_history(opener, fork_server, (first, other), point, finds, ends)
        killed += Killed(Counter({point: deaths}), 1)
    return killed


def _changed_history(
    opener: ChangingOpener,
    fork_server: ForkServer,
    ways: tuple[str, str],
    point: CrashPoint,
    finds: bool,
    ends: Collection[int],
) -> int:
    """Run a whole job; return how many of its first processes died."""
    when = f"{ways[0]} -> {ways[1]} -> {ways[0]}, killed at {point}"
    with opener() as harness, _life(harness) as life, closing(Case(harness)) as case:
        deaths = 0
        refused: set[str] = set()
        for way in ways:
            killed = replace(life, new_sink=harness.ways[way], crash=str(point))
            code = fork_server.live(killed)
            assert code in (*ends, -SIGKILL), f"{when}: exit code {code} by {way}"
            deaths += code == -SIGKILL
            case.nothing_beyond(written(EPOCHS), when=f"{when}, after {way}")
        for way in (ways[0], ways[1], ways[0]):
            # The engine died before it noted its last epoch as done: it runs it again.
            (life.folder / f"{len(EPOCHS) - 1}.done").unlink(missing_ok=True)
            code = fork_server.live(replace(life, new_sink=harness.ways[way]))
            assert code in ends, f"{when}: exit code {code} at the end by {way}"
            (refused.discard if code == DONE else refused.add)(way)
            if code == DONE:
                case.holds(written(EPOCHS), when=f"{when}, at the end by {way}")
                if finds:
                    case.is_clean(when=f"{when}, at the end by {way}")
        assert len(refused) < len(ways), f"{when}: by neither way"
        case.is_clean(when=f"{when}, at the end")
        return deaths


def _history(opener: Opener, fork_server: ForkServer, *crashes: str) -> list[bool]:
    """Run a whole job whose first processes die as armed; return whether each of them did."""
    when = f"a job whose processes die at {' then '.join(crashes)}"
    with opener() as harness, _life(harness) as life, closing(Case(harness)) as case:
        deaths = []
        for armed in crashes:
            code = fork_server.live(replace(life, crash=armed))
            assert code in (DONE, -SIGKILL), f"{when}: exit code {code} at {armed}"
            deaths.append(code == -SIGKILL)
            if code == DONE:
                break
            case.nothing_beyond(written(EPOCHS), when=f"{when}, after {armed}")
        _run_to_the_end(fork_server, life, when)
        expected = case.expected(EPOCHS)
        case.finished(expected, when=when)
        # The engine died before it noted its last epoch as done: it runs it again.
        (life.folder / f"{len(EPOCHS) - 1}.done").unlink()
        _run_to_the_end(fork_server, life, when)
        case.finished(expected, when=f"{when}, and a replay")
        return deaths


def _run_to_the_end(fork_server: ForkServer, life: Life, when: str) -> None:
    code = fork_server.live(life)
    assert code == DONE, f"{when}: exit code {code} of a process that was not to die"


@contextmanager
def _life(harness: Harness) -> Iterator[Life]:
    with tempfile.TemporaryDirectory(prefix="abs-crash-") as folder:
        yield Life(harness.new_sink, harness.own_register, Path(folder))
