"""The figures once more, in one run: ``python -m benchmarks.renew --minutes 25``, or ``make figures``.

Each benchmark runs in a process of its own, in the order of what people look at first. One that fails,
or for which there is no time, keeps the result that was there, and is named at the end. Then the page
of figures and the README are made from the results.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import summary
from benchmarks.__main__ import MISSED, Name

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Short:
    """A benchmark with fewer rounds than by default.

    Args:
        seconds: what it may take on a quiet machine with two cores; it is not begun with less left.
    """

    name: Name
    pairs: int
    seconds: int


SHORT = (
    Short(Name.SMALL_EPOCHS, 2, 420),
    Short(Name.CHANGES, 5, 50),
    Short(Name.CHANGES_MERGE, 3, 90),
    Short(Name.DEAD_LETTERS, 5, 20),
    Short(Name.KAFKA_DEAD_LETTERS, 5, 40),
    Short(Name.S3_DEAD_LETTERS, 3, 60),
    Short(Name.SPARK_JDBC, 3, 160),
    Short(Name.SPARK_S3, 4, 100),
    Short(Name.SPARK_KAFKA_100, 2, 260),
    Short(Name.THREE_TARGETS, 2, 80),
    Short(Name.KAFKA_AVRO, 3, 60),
    Short(Name.LAKE_S3, 3, 150),
)
"""What README, scoreboard and pages speak of most; ``make bench`` runs all others."""


def command(one: Short, more: Sequence[str]) -> list[str]:
    """The command line of a benchmark; ``more``: further arguments of each."""
    asked = [one.name.value, "--pairs", str(one.pairs)]
    return [sys.executable, "-m", "benchmarks", *asked, *more]


def renew(benchmarks: Sequence[Short], seconds: float, more: Sequence[str]) -> Iterator[str]:
    """Run the benchmarks; yields a line for each one that has no new result."""
    ends = time.monotonic() + seconds
    for one in benchmarks:
        left = ends - time.monotonic()
        if left < one.seconds:
            yield f"{one.name}: not run, {left:.0f} s are left and it takes {one.seconds}"
            continue
        result = ROOT / "benchmarks" / "results" / f"{one.name}.json"
        before = result.stat().st_mtime_ns if result.exists() else 0
        try:
            code = subprocess.run(
                command(one, more), cwd=ROOT, check=False, timeout=left
            ).returncode
        except subprocess.TimeoutExpired:
            yield f"{one.name}: cut off after {left:.0f} s"
            continue
        if code not in (0, MISSED) or not result.exists() or result.stat().st_mtime_ns == before:
            yield f"{one.name}: no result, exit code {code}"


def main(
    minutes: Annotated[float, typer.Option(help="Ends after about so many.")] = 25,
    spark_python: Annotated[
        Path | None, typer.Option(help="As of python -m benchmarks: for spark_kafka_100.")
    ] = None,
    spark_jars: Annotated[Path | None, typer.Option(help="Folder of its jars.")] = None,
) -> None:
    """Renew results, figures and README; exit code 1 if a benchmark has no new result."""
    peer = spark_python is not None and spark_jars is not None
    more = ["--spark-python", str(spark_python), "--spark-jars", str(spark_jars)] if peer else []
    missing = list(renew(SHORT, minutes * 60, more))
    summary.main()
    for line in missing:
        print(line)
    raise typer.Exit(bool(missing))


if __name__ == "__main__":
    typer.run(main)
