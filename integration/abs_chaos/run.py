"""Runs a job under kills, and audits its target."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from abs_audit import AuditSettings, Relation, audit
from abs_audit.workspace import workspace
from abs_chaos.aim import Aim, Aiming, Clock
from abs_chaos.killing import STALLED_AFTER_S, Killing, Picture
from abs_chaos.moments import Moment
from abs_chaos.outcome import Outcome
from abs_chaos.process import JobProcess
from abs_chaos.schedule import UNSEEN, schedule
from abs_chaos.watch import Blind, CheckpointWatch
from abs_core.errors import ConfigError, OptionError

EVERY_S = 10.0
MOMENTS = (Moment.COMMITTED, *UNSEEN)
"""The phases that a checkpoint shows."""


@dataclass(frozen=True, slots=True)
class ChaosSettings:
    """How a job is run and killed.

    Args:
        command: starts the job, and starts it again after each kill.
        log: for its output; appended to.
        seed: draws the moments.
        checkpoint: of a Spark query, on this machine; its phases are then seen.
        every_s: kill by the clock, after so many seconds on average.
        moment: kill in this phase only. Default with a checkpoint: each in turn.
        failures: how often in a row the job may end with an error, and is started again.
        quiet_s: the job does not end by itself: it is through when its checkpoint shows no new epoch
            for so many seconds.
        stalled_after_s: it is an error if the checkpoint shows no new epoch for so many seconds.
        environment: of the job; None: this process's.

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

    def __post_init__(self) -> None:
        if not self.command:
            raise OptionError("No command is given.", remedy="write it after --.")
        if self.kills < 0:
            raise OptionError(f"kills is {self.kills}.", remedy="give 0 or more.")
        if self.every_s is not None and self.moment is not None:
            raise OptionError(
                "Kills go by the clock, or by the job's phases.", remedy="omit --every or --at."
            )
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

    def aim(self) -> Aiming:
        """The kills, as the seed draws them."""
        if self.checkpoint is None or self.every_s is not None:
            return Clock(self.seed, self.kills, self.every_s or EVERY_S)
        # How many epochs there will be is not known: every second one has a kill.
        epochs = 2 * self.kills + 2
        turns, spark = (UNSEEN, True) if self.moment is None else ((self.moment,), False)
        return Aim(schedule(self.seed, turns, self.kills, epochs, spark=spark))


def kill_to_end(settings: ChaosSettings, picture: Picture) -> Killing:
    """Run the job to its end under kills; its ``kills`` tell them.

    Raises:
        ConfigError: the command is not there.
        UnavailableError: the job fails by itself too often, or completes no epoch for long.
    """
    if shutil.which(settings.command[0]) is None:
        raise ConfigError(
            f"There is no command {settings.command[0]!r}.", remedy="correct its name, or the PATH."
        )
    settings.log.touch()
    given = os.environ if settings.environment is None else settings.environment

    def start() -> JobProcess:
        return JobProcess(settings.command, given, Path.cwd(), settings.log)

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
        expected.columns(connection)
    began = time.monotonic()
    killing = kill_to_end(settings, picture)
    seconds = time.monotonic() - began
    return Outcome(
        seed=settings.seed,
        asked=settings.kills,
        kills=killing.kills,
        failures=killing.failures,
        job_seconds=seconds,
        report=audit(expected, actual, compared),
    )
