"""Spark sessions in processes of their own: of this version of Spark, and of another one.

Each runs a script of this folder that waits for lines on standard input, does what a line says, and
answers with a line of JSON. The scripts import nothing of ours where another Spark runs them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any

from benchmarks.ratios import Sample

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Installed:
    """Where a Spark is.

    Args:
        python: its interpreter.
        jars: what the session gets as ``spark.jars``.
    """

    python: str = sys.executable
    jars: Sequence[str] = ()

    @classmethod
    def other(cls, python: Path, jars: Path) -> Installed:
        """One outside of this environment, with all the jars of a folder."""
        return cls(str(python.absolute()), [str(path) for path in sorted(jars.glob("*.jar"))])


THIS = Installed()


class Session:
    """One that is ready."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Have it done; what the session answers.

        Raises:
            AssertionError: the session has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise AssertionError("the session has ended")


def sample_of(epochs: Sequence[Mapping[str, Any]], cpu_s: float, *, uncounted: int) -> Sample:
    """What ``write_job`` answered, as a sample: Spark's ``triggerExecution`` of the epochs that count.

    Args:
        cpu_s: of all epochs; those that count get their share by number.
        uncounted: epochs at the start that do not count.
    """
    counted = epochs[uncounted:]
    spent = [epoch["ms"] for epoch in counted]
    parts = [(name, fmean(ms.get(name, 0) for ms in spent) / 1e3) for name in sorted(spent[0])]
    return Sample(
        sum(ms["triggerExecution"] for ms in spent) / 1e3,
        cpu_s * len(counted) / len(epochs),
        sum(epoch["rows"] for epoch in counted),
        tuple(parts),
    )


@contextmanager
def session(
    script: str, spark: Installed = THIS, env: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Session]:
    """A session that runs a script of this folder, ready.

    Args:
        env: more variables of its environment.

    Raises:
        AssertionError: it did not start.
    """
    ours = {"PYTHONPATH": str(_HERE.parent)} if spark is THIS else {}
    with (
        tempfile.TemporaryDirectory(prefix="abs-bench-") as folder,
        subprocess.Popen(
            [spark.python, str(_HERE / script), *spark.jars],
            cwd=folder,
            env={
                "PATH": "/usr/bin:/bin",
                "PYSPARK_PYTHON": spark.python,
                "SPARK_LOCAL_IP": "127.0.0.1",
                **ours,
                **env,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            while process.stdout.readline().strip() != "ready":
                if process.poll() is not None:
                    raise AssertionError(f"the session of {script} did not start")
            yield Session(process)
        finally:
            process.stdin.close()
