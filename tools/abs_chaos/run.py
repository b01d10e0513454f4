"""Runs a job under kills, and audits its target."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Self

from abs_audit import AuditSettings, Relation, audit
from abs_audit.workspace import workspace
from abs_chaos.aim import Aim
from abs_chaos.blame import blame
from abs_chaos.killing import STALLED_AFTER_S, Killing, Picture
from abs_chaos.moments import Moment
from abs_chaos.outcome import Course, Outcome
from abs_chaos.process import JobProcess
from abs_chaos.schedule import UNSEEN, by_the_clock, schedule, with_blows
from abs_chaos.watch import Blind, CheckpointWatch
from abs_core.errors import AbsError, ConfigError, OptionError
from abs_services import Kind
from abs_services.lasting import running_ones

EVERY_S = 10.0
MOMENTS = tuple(dict.fromkeys((Moment.COMMITTED, *UNSEEN)))
"""The phases that a checkpoint shows."""
_COUNT_MIB = 256
_COUNT_EVERY_S = 1.0
_COUNT_SHARE = 0.1
"""Counting takes at most this share of the time."""


@dataclass(frozen=True, slots=True)
class ChaosSettings:
    """How a job is run and killed.

    Args:
        command: starts the job, and starts it again after each kill.
        log: for its output; appended to.
        seed: draws the moments.
        checkpoint: of a Spark query, on this machine; its phases are then seen.
        every_s: kill by the clock, after so many seconds on average.
        moment: kill in this phase only; with ``every_s`` it is every second kill that waits for it.
            Default with a checkpoint: each in turn.
        failures: how often in a row the job may end with an error, and is started again.
        quiet_s: the job does not end by itself: it is through when its checkpoint shows no new epoch
            for so many seconds.
        stalled_after_s: it is an error if the checkpoint shows no new epoch for so many seconds.
        environment: of the job; None: this process's.
        also: servers of ``abs up`` that go away in turn: as many times as the job is killed, and at
            least once each.
        count_rows: whether the target's visible rows are counted while the job runs.

    Raises:
        OptionError: a value is invalid.
    """

    command: Sequence[str]
    log: Path
    seed: int = 0
    kills: int = 5
    checkpoint: Path | None = None
    every_s: float | None = None
    moment: Moment | None = None
    failures: int = 3
    quiet_s: float | None = None
    stalled_after_s: float = STALLED_AFTER_S
    environment: Mapping[str, str] | None = None
    also: Sequence[Kind] = ()
    count_rows: bool = False

    def __post_init__(self) -> None:
        if not self.command:
            raise OptionError("No command is given.", remedy="write it after --.")
        if self.kills < 0:
            raise OptionError(f"kills is {self.kills}.", remedy="give 0 or more.")
        if self.every_s is not None and not 0 < self.every_s < float("inf"):
            raise OptionError(f"every is {self.every_s} s.", remedy="give more than 0 seconds.")
        if self.moment is not None and self.moment not in MOMENTS:
            raise OptionError(
                f"A checkpoint does not show the moment {self.moment.value!r}.",
                remedy=f"choose from {', '.join(MOMENTS)}.",
            )
        if self.checkpoint is None and (self.moment is not None or self.quiet_s is not None):
            raise OptionError(
                "Without a checkpoint nothing is seen of the job's phases.",
                remedy="name it by --checkpoint, or kill by --every and let the job end.",
            )

    @property
    def blows(self) -> int:
        """How often a server goes away."""
        return max(self.kills, len(self.also)) if self.also else 0

    def aim(self) -> Aim:
        """The kills and blows, as the seed draws them."""
        number = self.kills + self.blows
        if self.checkpoint is not None and self.every_s is None:
            # How many epochs there will be is not known: every second one has a kill.
            turns, spark = (UNSEEN, True) if self.moment is None else ((self.moment,), False)
            planned = schedule(self.seed, turns, number, 2 * number + 2, spark=spark)
        else:
            planned = by_the_clock(self.seed, number, self.every_s or EVERY_S, self.moment)
        return Aim(with_blows(self.seed, planned, self.blows, self.also))


def kill_to_end(settings: ChaosSettings, picture: Picture) -> Killing:
    """Run the job to its end under kills; its ``kills`` tell them.

    Raises:
        ConfigError: the command is not there, or a server that is to go away does not run.
        UnavailableError: the job fails by itself too often, or completes no epoch for long.
    """
    if shutil.which(settings.command[0]) is None:
        raise ConfigError(
            f"There is no command {settings.command[0]!r}.", remedy="correct its name, or the PATH."
        )
    running_ones(settings.also)
    settings.log.touch()
    environment = os.environ if settings.environment is None else settings.environment

    def start() -> JobProcess:
        return JobProcess(settings.command, environment, Path.cwd(), settings.log)

    watch = Blind() if settings.checkpoint is None else CheckpointWatch(settings.checkpoint)
    killing = Killing(
        start,
        settings.aim(),
        watch,
        picture,
        settings.log,
        failures=settings.failures,
        quiet_s=settings.quiet_s,
        stalled_after_s=None if settings.checkpoint is None else settings.stalled_after_s,
    )
    killing.run()
    return killing


def chaos(
    settings: ChaosSettings,
    expected: Relation,
    actual: Relation,
    compared: AuditSettings,
    picture: Picture,
) -> Outcome:
    """Run the job to its end under kills, and compare its target with the expected records.

    The expected records are looked for before the job starts; the target may be made by the job.
    Raises as ``kill_to_end`` and ``abs_audit.audit``.
    """
    with workspace(compared.memory_mib, compared.temp_directory) as connection:
        columns = [*compared.key, *expected.columns(connection)]
    rows = VisibleRows(actual, columns[0])
    with rows if settings.count_rows else contextlib.nullcontext():
        course = course_of(settings, picture)
    report = audit(expected, actual, compared)
    blamed = blame(settings.checkpoint, expected, actual, compared, report, course.events)
    parts = {field.name: getattr(course, field.name) for field in fields(course)}
    return Outcome(**parts, report=report, blamed=blamed, visible=rows.counts)


def course_of(settings: ChaosSettings, picture: Picture) -> Course:
    """Run the job to its end under kills. Raises as ``kill_to_end``."""
    began = time.monotonic()
    killing = kill_to_end(settings, picture)
    return Course(
        settings.seed,
        settings.kills,
        killing.kills,
        killing.failures,
        time.monotonic() - began,
        asked_blows=settings.blows,
        epochs=killing.epochs,
    )


class VisibleRows:
    """Counts in a thread of its own, once a second or less often where a count takes long.

    A target that is not there yet, or does not answer, has no count at that moment.

    Args:
        column: to read.
    """

    def __init__(self, target: Relation, column: str) -> None:
        self._target = target
        self._column = column
        self._began = time.monotonic()
        self._counts: list[tuple[float, int]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    @property
    def counts(self) -> tuple[tuple[float, int], ...]:
        """Seconds since the start, and rows."""
        return tuple(self._counts)

    def _run(self) -> None:
        pause = 0.0
        while not self._over.wait(pause):
            began = time.monotonic()
            try:
                with (
                    workspace(_COUNT_MIB, None) as connection,
                    self._target.rows(connection, [self._column]) as rows,
                ):
                    ((count,),) = rows.aggregate("count(*)").fetchall()
                self._counts.append((round(began - self._began, 3), count))
            except AbsError:  # it is away, or not there yet: the audit at the end will say so
                pass
            pause = max(_COUNT_EVERY_S, (time.monotonic() - began) / _COUNT_SHARE)
