"""Updates the display from what is seen of the job, a few times a second."""

from __future__ import annotations

import re
import time
from pathlib import Path

from abs_demo.display import Display, View
from abs_demo.hops import JOB
from abs_demo.job import UNSAFE
from abs_demo.moments import Sight
from abs_demo.process import JobProcess
from abs_demo.settings import DemoSettings, Killed
from abs_demo.watch import Watch

REFRESH_S = 0.5
# What abs_spark says of a recovery, in the job's own log.
_RECOVERY = re.compile(rf"abs_spark\.recovery: job ({JOB}[a-z0-9-]*): (.*)")


class Picture:
    """The current picture; updated by the loop that also kills.

    Args:
        rows: expected in the table.
        log: the job's.
    """

    def __init__(
        self, settings: DemoSettings, watch: Watch, display: Display, rows: int, log: Path
    ) -> None:
        self._settings = settings
        self._watch = watch
        self._display = display
        self._rows_expected = rows
        self._rows = 0
        self._log = log
        self._log_read = 0
        self._events: list[str] = []
        self._shown_at = 0.0
        # What the register and Spark said before this run of the job did anything.
        self._before: tuple[int | None, int | None] = (None, None)
        self._began = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the picture was made."""
        return time.monotonic() - self._began

    def update(self, sight: Sight, process: JobProcess, *, aiming: bool) -> None:
        """Show the new state, unless the last picture is fresh.

        ``aiming``: a kill may be due within milliseconds, so slow queries are left out.
        """
        if time.monotonic() - self._shown_at < REFRESH_S:
            return
        if not aiming:
            self._rows = self._watch.rows()
            self._hear_recovery()
        processes = process.processes()
        state = "starting" if (sight.generation, sight.noted) == self._before else "running"
        self._draw(sight, f"{state}, {processes} processes")

    def killed(self, number: int, kill: Killed, sight: Sight) -> None:
        """Show a kill; the next run is starting."""
        self._before = (sight.generation, sight.noted)
        self._hear_recovery()
        self._rows = self._watch.rows()
        self._events.append(f"SIGKILL #{number} {kill.story} ({kill.processes} processes)")
        self._draw(sight, "killed")

    def ended(self, sight: Sight) -> None:
        """Show that the job has succeeded."""
        self._hear_recovery()
        self._rows = self._watch.rows()
        self._draw(sight, "done")

    def _draw(self, sight: Sight, state: str) -> None:
        settings = self._settings
        protocol = settings.protocol
        name = "a plain writer (at least once)" if protocol == UNSAFE else f"protocol {protocol}"
        newest = sight.noted if protocol == UNSAFE else sight.finished
        done = 0 if newest is None else newest + 1
        self._display.show(
            View(
                title=f"{settings.story}, {name}, seed {settings.seed}",
                epochs=(done, max(done, settings.epochs)),
                rows=(self._rows, self._rows_expected),
                in_doubt=sight.in_doubt,
                thing=self._watch.thing,
                state=state,
                elapsed=self.elapsed,
                events=tuple(self._events),
            )
        )
        self._shown_at = time.monotonic()

    def _hear_recovery(self) -> None:
        with self._log.open(errors="replace") as log:
            log.seek(self._log_read)
            said = log.read()
            self._log_read = log.tell()
        for job, what in _RECOVERY.findall(said):
            self._events.append(f"    recovery{job.removeprefix(JOB).replace('-', ' ')}: {what}")
