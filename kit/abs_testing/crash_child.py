"""The process of the crash checks: a job of three epochs that dies at an armed crash point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from abs_core import crash
from abs_core.contracts import Sink
from abs_core.model import Drained, Share
from abs_core.patience import Patience
from abs_core.registers import FileRegister
from abs_testing.case import JOB, rows
from abs_testing.engine import Run
from abs_testing.harness import Row

EPOCHS: tuple[tuple[Sequence[Row], ...], ...] = (
    (rows(0, 4), rows(10, 4), rows(20, 3)),
    (rows(30, 4), rows(40, 4)),
    # A task without a row, and one that writes two old keys again: append has both, upsert the new.
    (rows(50, 4), [], rows(10, 2, "new")),
)
FAILING = 1
"""The epoch that the engine fails once, after its tasks' pre-commit, to abandon and abort it."""

DONE = 0
"""Exit code of a process that was not killed: all epochs are done."""

REFUSED = 3
"""Exit code of a process that ended with an error that says what to do; nothing is lost."""


@dataclass(frozen=True, slots=True)
class Life:
    """One process of the job.

    Args:
        new_sink: builds its sink; picklable.
        own_register: whether the register is the sink's; a file in ``folder`` otherwise.
        folder: the engine's checkpoint, which records the epochs that are done.
        crash: where it dies, as in ``ABS_TEST_CRASH``; None: nowhere.
    """

    new_sink: Callable[[], Sink]
    own_register: bool
    folder: Path
    crash: str | None = None

    def live(self) -> int:
        """Start, and run the epochs that are not done by the checkpoint."""
        crash.arm(self.crash)
        sink = self.new_sink()
        run = self._start(sink)
        for epoch, parts in enumerate(EPOCHS):
            if (self.folder / f"{epoch}.done").exists():
                continue
            failed = self.folder / "failed"
            if epoch == FAILING and not failed.exists() and not run.decided(epoch):
                _write(run, epoch, parts)
                run.abort(epoch)
                failed.touch()
                run = self._start(sink)
            run.commit(epoch, _write(run, epoch, parts))
            (self.folder / f"{epoch}.done").touch()
        sink.close()
        return DONE

    def _start(self, sink: Sink) -> Run:
        store = None if self.own_register else FileRegister(self.folder / "register")
        return Run(sink, JOB, store=store, patience=Patience(seconds=20.0))


def _write(run: Run, epoch: int, parts: Sequence[Sequence[Row]]) -> list[Share]:
    return [_task(run, epoch, partition, part) for partition, part in enumerate(parts)]


def _task(run: Run, epoch: int, partition: int, part: Sequence[Row]) -> Share:
    """A task; in the first partition another attempt runs before it and loses."""
    half = len(part) // 2
    attempts = 2 if partition == 0 else 1
    for _ in range(attempts):
        share: Share = Drained(len(part))
        if not run.decided(epoch):
            attempt = run.attempt(epoch, partition)
            share = attempt.write(*part[:half]).write(*part[half:]).pre_commit()
    return share
