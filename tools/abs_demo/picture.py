"""Shows the running demo: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from abs_chaos.killing import Killed
from abs_chaos.moments import Sight, counted
from abs_chaos.process import JobProcess
from abs_demo.hops import JOB
from abs_demo.job import UNSAFE
from abs_demo.settings import DemoSettings
from abs_demo.watch import Watch

REFRESH_S = 0.5
LINE_EVERY_EPOCHS = 10
# What abs_spark says of a recovery, in the job's own log.
_RECOVERY = re.compile(rf"abs_spark\.recovery: job ({JOB}[a-z0-9-]*): (.*)")


class Picture:
    """The current picture; updated by the loop that also kills.

    On a terminal one panel, whose last state stays; elsewhere a line for each event, and for every
    tenth epoch.
    """

    def __init__(
        self,
        settings: DemoSettings,
        watch: Watch,
        console: Console,
        expected_rows: int,
        job_log: Path,
    ) -> None:
        self._settings = settings
        self._watch = watch
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._expected_rows = expected_rows
        self._rows = 0
        self._log = job_log
        self._log_read = 0
        self._events: list[str] = []
        self._events_said = 0
        self._epochs = 0
        self._shown_at = 0.0
        # What the register and Spark said before this run of the job did anything.
        self._before: tuple[int | None, int | None] = (None, None)
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        if self._live is None:
            self._say(self._title)
        else:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

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

    @property
    def _title(self) -> str:
        protocol = self._settings.protocol
        name = "a plain writer (at least once)" if protocol == UNSAFE else f"protocol {protocol}"
        return f"{self._settings.story}, {name}, seed {self._settings.seed}"

    def _draw(self, sight: Sight, state: str) -> None:
        newest = sight.noted if self._settings.protocol == UNSAFE else sight.finished
        done = 0 if newest is None else newest + 1
        of = max(done, self._settings.epochs)
        if self._live is not None:
            self._live.update(self._panel(sight, state, done, of), refresh=True)
        else:
            for event in self._events[self._events_said :]:
                self._say(f"{_clock(self.elapsed)} {event}")
            self._events_said = len(self._events)
            if done // LINE_EVERY_EPOCHS > self._epochs // LINE_EVERY_EPOCHS:
                self._say(f"{_clock(self.elapsed)} {done} of {of} epochs, {self._rows:,} rows")
            self._epochs = done
        self._shown_at = time.monotonic()

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _panel(self, sight: Sight, state: str, done: int, of: int) -> RenderableType:
        """The picture, for a terminal of any width."""
        figures = Table.grid(padding=(0, 2))
        figures.add_column(style="dim", justify="right")
        figures.add_column()
        bar = Table.grid(padding=(0, 1))
        bar.add_row(ProgressBar(total=of, completed=done, width=40), f"{done} of {of}")
        figures.add_row("epochs", bar)
        style = "red" if self._rows > self._expected_rows else ""
        rows = f"{self._rows:,} of {self._expected_rows:,}"
        figures.add_row("rows", Text(rows, style=style))
        doubts = counted(sight.in_doubt, self._watch.thing)
        figures.add_row("in doubt", Text(doubts, style="yellow" if sight.in_doubt else "dim"))
        figures.add_row("job", Text(state, style="red" if state == "killed" else "green"))
        figures.add_row("elapsed", _clock(self.elapsed))
        events = [Text(event, style="red") for event in self._events]
        return Panel(Group(figures, *events), title=Text(self._title), title_align="left")

    def _hear_recovery(self) -> None:
        with self._log.open(errors="replace") as log:
            log.seek(self._log_read)
            said = log.read()
            self._log_read = log.tell()
        for job, event in _RECOVERY.findall(said):
            self._events.append(f"    recovery{job.removeprefix(JOB).replace('-', ' ')}: {event}")


def _clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
