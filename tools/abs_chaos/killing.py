"""The main loop: start the job, watch it, kill it, restart it, until it is done."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from abs_chaos.aim import Aim
from abs_chaos.moments import Moment, Sight, story
from abs_chaos.process import JobProcess
from abs_chaos.schedule import Blow, Kill
from abs_chaos.watch import Watch
from abs_core.errors import UnavailableError
from abs_services.contracts import Outage
from abs_services.lasting import away

STALLED_AFTER_S = 300.0
_AIMING_S = 0.005
_LOG_LINES = 25
_BETWEEN_TRIES_S = 0.5
_WHAT = {Outage.STOP: "stopped", Outage.FREEZE: "frozen", Outage.CUT: "killed"}


@dataclass(frozen=True, slots=True)
class Killed:
    """One kill and its effect.

    Args:
        at_seconds: since the job's first start.
        wanted: the awaited phase.
        found: the phase that it hit.
        epoch: the current or the last one.
        in_doubt: what was left pre-committed.
        processes: number of killed processes.
        story: the same for people.
        recovered_s: seconds until the job had completed an epoch again; None if that was not seen.
        server: that went away instead; the job was not killed.
        away_s: for so long, until it was told to come back.
    """

    at_seconds: float
    wanted: Moment
    found: Moment
    epoch: int | None
    in_doubt: int
    processes: int
    story: str
    recovered_s: float | None = None
    server: str | None = None
    away_s: float = 0.0


class Picture(Protocol):
    """Shows what happens."""

    def update(self, sight: Sight, process: JobProcess, *, aiming: bool) -> None:
        """A look; ``aiming``: a kill may be due within milliseconds."""

    def killed(self, number: int, kill: Killed, sight: Sight) -> None:
        """A kill; the next run is starting."""


class Killing:
    """One job, over all of its runs.

    Args:
        start: starts the job, with its output appended to ``log``.
        failures: how often in a row the job may end by itself with an error; it is started again.
        quiet_s: the job never ends by itself: after the last kill it is ended once it has completed
            no epoch for so many seconds.
        stalled_after_s: it is an error if no epoch is completed for so many seconds; None: no epoch
            is visible.
    """

    def __init__(
        self,
        start: Callable[[], JobProcess],
        aim: Aim,
        watch: Watch,
        picture: Picture,
        log: Path,
        *,
        failures: int = 0,
        quiet_s: float | None = None,
        stalled_after_s: float | None = STALLED_AFTER_S,
    ) -> None:
        self._start = start
        self._aim = aim
        self._watch = watch
        self._picture = picture
        self._log = log
        self._most_failures = failures
        self._quiet_s = quiet_s
        self._stalled_after_s = stalled_after_s
        self._failed = 0
        self._began = time.monotonic()
        self._killed_at = self._began
        self._kills: list[Killed] = []
        self._servers = Servers()
        self._epochs: list[tuple[float, int]] = []
        self._newest = watch.look().noted
        self._moved_at = self._began
        self.failures = 0
        """How often the job ended by itself with an error."""

    @property
    def kills(self) -> tuple[Killed, ...]:
        """The kills so far, and the servers that went away."""
        return tuple(self._kills)

    @property
    def epochs(self) -> tuple[tuple[float, int], ...]:
        """When Spark had noted which epoch: seconds since the job's first start."""
        return tuple(self._epochs)

    def run(self) -> tuple[Killed, ...]:
        """Run the job to its end, and return the kills.

        Raises UnavailableError if the job fails by itself too often, or completes no epoch for long.
        """
        process = self._start()
        try:
            while True:
                if process.has_ended:
                    if self._has_succeeded(process):
                        break
                    process = self._start()
                sight = self._watch.look(closely=self._aim.next is not None)
                # One thing at a time: what was lost could not be told from what another one lost.
                if not self._servers.is_one_away and self._aim.due(sight, time.monotonic()):
                    process = self._strike(process)
                    continue
                pause = self._aim.pause(sight)
                if self._is_through(sight):
                    break
                self._picture.update(sight, process, aiming=pause < _AIMING_S)
                time.sleep(pause)
        finally:
            process.kill()
            self._servers.close()
        return self.kills

    def _strike(self, process: JobProcess) -> JobProcess:
        """Carry out what is due; the process that runs after it."""
        kill = self._aim.next
        assert kill is not None
        if kill.blow is not None:
            self._servers.begin(kill.blow)
            self._killed_at = time.monotonic()
            self._note(kill, self._watch.look(), 0)
            return process
        processes = process.kill()
        self._killed_at = time.monotonic()
        # At once: what was left is looked at while the job starts, which takes seconds.
        process = self._start()
        self._note(kill, self._watch.settled(), processes)
        return process

    def _note(self, kill: Kill, sight: Sight, processes: int) -> None:
        self._aim.killed(sight)
        has_moment = sight.planned is not None or kill.moment is not Moment.ANY
        recovering = kill.moment is Moment.RECOVERING
        record = Killed(
            at_seconds=round(self._killed_at - self._began, 3),
            wanted=kill.moment,
            found=sight.moment if has_moment else Moment.ANY,
            epoch=sight.planned,
            in_doubt=sight.in_doubt,
            processes=processes,
            story=story(sight, self._watch.thing, recovering=recovering)
            if has_moment
            else "by the clock",
            server=None if kill.blow is None else told_of(kill.blow),
            away_s=0.0 if kill.blow is None else kill.blow.seconds,
        )
        self._kills.append(record)
        self._failed = 0
        self._note_epoch(sight, self._killed_at)
        self._moved_at = time.monotonic()
        self._picture.killed(len(self._kills), record, sight)

    def _note_epoch(self, sight: Sight, at: float) -> None:
        if sight.noted is not None and sight.noted != self._newest:
            self._epochs.append((round(at - self._began, 3), sight.noted))
        self._newest = sight.noted

    def _is_through(self, sight: Sight) -> bool:
        """Whether an endless job has nothing left to do; notes its progress."""
        now = time.monotonic()
        if sight.noted != self._newest:
            if (
                self._kills
                and self._kills[-1].recovered_s is None
                and not self._servers.is_one_away
            ):
                recovered = round(now - self._killed_at, 3)
                self._kills[-1] = replace(self._kills[-1], recovered_s=recovered)
            self._note_epoch(sight, now)
            self._moved_at = now
            self._failed = 0
        still = now - self._moved_at
        idle = self._aim.next is None and sight.noted is not None and sight.epoch is None
        if self._quiet_s is not None and idle and still > self._quiet_s:
            return True
        if self._stalled_after_s is not None and still > self._stalled_after_s:
            raise UnavailableError(
                f"No epoch of the job has ended for {still:.0f} s. The end of its log:\n"
                f"{last_words(self._log)}",
                remedy=f"read the log, {self._log}; the machine may be too slow.",
            )
        return False

    def _has_succeeded(self, process: JobProcess) -> bool:
        code = process.end()
        if code == 0:
            return True
        self.failures += 1
        if self._servers.is_one_away:
            time.sleep(_BETWEEN_TRIES_S)
            return False  # the server's absence explains it: it does not count as a failure
        self._failed += 1
        if self._failed > self._most_failures:
            raise UnavailableError(
                f"The job ended by itself with exit code {code}, without a kill. The end of its log:\n"
                f"{last_words(self._log)}",
                remedy=f"correct the cause, then run it again; its log is {self._log}.",
            )
        return False


def last_words(log: Path) -> str:
    """The last of our errors in a job's log, or the log's end."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("abs_core.errors.")]
    return "\n".join(ours[-1:] or lines[-_LOG_LINES:])


class Servers:
    """Servers of ``abs up`` that go away under the job, one after the other, and come back."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "abs-chaos-servers")
        self._running: Future[None] | None = None

    @property
    def is_one_away(self) -> bool:
        """Whether a blow is not over yet. Raises its error if it failed."""
        if self._running is not None and self._running.done():
            running, self._running = self._running, None
            running.result()
        return self._running is not None

    def begin(self, blow: Blow) -> None:
        """Let the server go away; it comes back by itself."""
        self._running = self._thread.submit(_strike, blow)

    def close(self) -> None:
        """Wait until every server is back. Raises the error of the last blow."""
        self._thread.shutdown()
        _ = self.is_one_away


def _strike(blow: Blow) -> None:
    with away(blow.kind, blow.how):
        time.sleep(blow.seconds)


def told_of(blow: Blow) -> str:
    """Which server went away, how, and for how long, as a text for people."""
    return f"{blow.kind} {_WHAT[blow.how]} for {blow.seconds:.1f} s"
