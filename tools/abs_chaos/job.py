"""A test's job, as a process of its own that can be killed."""

from __future__ import annotations

import inspect
import json
import os
import runpy
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from abs_chaos.killing import Killed, Picture, last_words
from abs_chaos.moments import Moment, Sight
from abs_chaos.process import JobProcess
from abs_chaos.run import ChaosSettings, kill_to_end
from abs_core.errors import OptionError, UnavailableError

_VARIABLE = "ABS_CHAOS_FUNCTION"
_LOOK_S = 0.01
_PYSPARK = {"PYSPARK_PYTHON": sys.executable}


class Job:
    """One job, over all of its runs.

    Args:
        what: a script's path, a function at the top of a module, or a command as a list.
        arguments: of the script as texts; of the function whatever JSON holds.
        log: for the job's output.
        checkpoint: of a Spark query, on this machine: kills then go by the query's phases.
        env: more variables for the job. Passwords belong here, not among a script's arguments.
    """

    def __init__(
        self,
        what: str | Path | Sequence[str] | Callable[..., object],
        *arguments: Any,
        log: Path,
        checkpoint: str | Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        # Else Spark's workers take the python3 of the PATH, which is another where no venv is active.
        ours = {} if isinstance(what, Sequence) and not isinstance(what, str) else _PYSPARK
        self._environment = {**ours, **os.environ, **(env or {})}
        self._process: JobProcess | None = None
        if callable(what):
            self._command = [sys.executable, "-m", __name__]
            self._environment[_VARIABLE] = json.dumps([*_place(what), arguments])
        elif isinstance(what, str | Path):
            self._command = [sys.executable, str(what), *map(str, arguments)]
        else:
            self._command = [*what, *map(str, arguments)]

    def start(self) -> None:
        """Start the job, if it does not run."""
        if self._process is None:
            self._process = JobProcess(self._command, self._environment, Path.cwd(), self.log)

    def kill(self) -> int:
        """SIGKILL all processes of the job, and return their number; 0 if none runs."""
        process, self._process = self._process, None
        return 0 if process is None else process.kill()

    def kill_when(self, condition: Callable[[], object], *, within_s: float = 120.0) -> int:
        """Start the job if it does not run, and kill it once the condition is true.

        Returns the number of killed processes. Raises UnavailableError if the job ends before, or
        the time is over.
        """
        self.start()
        assert self._process is not None
        give_up = time.monotonic() + within_s
        while not condition():
            if self._process.has_ended or time.monotonic() > give_up:
                ended = "ended" if self._process.has_ended else f"ran for {within_s:.0f} s"
                self.kill()
                raise UnavailableError(
                    f"The job {ended} before it was to be killed. The end of its log:\n"
                    f"{last_words(self.log)}",
                    remedy="give it more input, or wait for something that comes earlier.",
                )
            time.sleep(_LOOK_S)
        return self.kill()

    def run_to_end(
        self,
        kills: int = 0,
        *,
        seed: int = 0,
        every_s: float | None = None,
        at: Moment | str | None = None,
        failures: int = 0,
        quiet_s: float | None = None,
    ) -> tuple[Killed, ...]:
        """Run the job until it ends by itself; the arguments are those of ``ChaosSettings``.

        Raises UnavailableError if it fails by itself, AssertionError if it ends before all kills
        were carried out: such a run proves nothing.
        """
        self.kill()
        settings = ChaosSettings(
            self._command,
            self.log,
            seed=seed,
            kills=kills,
            checkpoint=self._checkpoint,
            every_s=every_s,
            moment=None if at is None else Moment(at),
            failures=failures,
            quiet_s=quiet_s,
            environment=self._environment,
        )
        done = kill_to_end(settings, _Silent()).kills
        if len(done) < kills:
            raise AssertionError(f"the job ended after {len(done)} of {kills} kills")
        return done


class _Silent(Picture):
    def update(self, sight: Sight, process: JobProcess, *, aiming: bool) -> None:
        """Nothing."""

    def killed(self, number: int, kill: Killed, sight: Sight) -> None:
        """Nothing."""


def _place(function: Callable[..., object]) -> tuple[str, str]:
    """File and name of a function. Raises OptionError if no other process can find it."""
    file, name = inspect.getsourcefile(function), getattr(function, "__qualname__", "")
    if file is None or not name.isidentifier():
        raise OptionError(
            f"The job's function {name or function!r} is not at the top of a module.",
            remedy="define it there, or put the job into a script.",
        )
    return file, name


def _run() -> None:
    file, name, arguments = json.loads(os.environ[_VARIABLE])
    runpy.run_path(file, run_name="abs_job")[name](*arguments)


if __name__ == "__main__":
    _run()
