"""The demo's main loop: start the job, watch it, kill it, restart it, until it is done."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from abs_core.errors import UnavailableError
from abs_demo.aim import Aim
from abs_demo.job import JobSettings
from abs_demo.moments import Moment, Sight, story
from abs_demo.picture import Picture
from abs_demo.process import JobProcess
from abs_demo.settings import DemoSettings, Killed
from abs_demo.watch import Watch

STALLED_AFTER_S = 300.0


class Killing:
    """One demo's job, over all of its runs."""

    def __init__(
        self,
        settings: DemoSettings,
        job: JobSettings,
        watch: Watch,
        console: Console,
        expected_rows: int,
    ) -> None:
        self._job = job
        self._log = job.places.folder / "job.log"
        self._log.touch()
        self._aim = Aim(settings.planned)
        self._watch = watch
        self._picture = Picture(settings, watch, console, expected_rows, self._log)
        self._kills: list[Killed] = []
        self._newest: int | None = None
        self._moved_at = time.monotonic()

    def run(self) -> tuple[tuple[Killed, ...], float]:
        """Run the job to its end; returns the kills, and the duration in seconds.

        Raises UnavailableError if the job ends before it is done, or makes no progress.
        """
        with self._picture:
            self._run()
        return tuple(self._kills), self._picture.elapsed

    def _run(self) -> None:
        process = self._start()
        try:
            while not process.has_ended:
                sight = self._watch.look(closely=self._aim.next is not None)
                if self._aim.due(sight, time.monotonic()):
                    processes = process.kill()
                    # At once: what was left is looked at while Spark starts, which takes seconds.
                    process = self._start()
                    self._note(processes)
                    continue
                pause = self._aim.pause(sight)
                self._check_moving(sight)
                self._picture.update(sight, process, aiming=pause < _AIMING_S)
                time.sleep(pause)
            self._check_end(process)
        finally:
            process.kill()
        self._picture.ended(self._watch.settled())

    def _start(self) -> JobProcess:
        job = self._job
        return JobProcess(job.command(), job.environment(), job.scratch, self._log)

    def _note(self, processes: int) -> None:
        kill = self._aim.next
        assert kill is not None
        found = self._watch.settled()
        self._aim.killed(found)
        told = Killed(
            at_seconds=round(self._picture.elapsed, 3),
            wanted=kill.moment,
            found=found.moment,
            epoch=found.planned,
            in_doubt=found.in_doubt,
            processes=processes,
            story=story(found, self._watch.thing, recovering=kill.moment is Moment.RECOVERING),
        )
        self._kills.append(told)
        self._moved_at = time.monotonic()
        self._picture.killed(len(self._kills), told, found)

    def _check_moving(self, sight: Sight) -> None:
        if sight.noted != self._newest:
            self._newest = sight.noted
            self._moved_at = time.monotonic()
        if time.monotonic() - self._moved_at > STALLED_AFTER_S:
            raise UnavailableError(
                f"No epoch of the job has ended for {STALLED_AFTER_S:.0f} s. The end of its log:\n"
                f"{last_words(self._log)}",
                remedy="read the log (--keep preserves it); the machine may be too slow.",
            )

    def _check_end(self, process: JobProcess) -> None:
        code = process.end()
        if code != 0:
            raise UnavailableError(
                f"The job ended by itself with exit code {code}, without a kill. The end of its log:\n"
                f"{last_words(self._log)}",
                remedy="correct the cause, then run the demo again (--keep preserves the log).",
            )


_AIMING_S = 0.005
_LOG_LINES = 25


def last_words(log: Path) -> str:
    """The last of our errors in a job's log, or the log's end."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("abs_core.errors.")]
    return "\n".join(ours[-1:] or lines[-_LOG_LINES:])
