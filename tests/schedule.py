"""Deals test files out to the workers of pytest-xdist: half of them begin with Spark's tests.

Tests with Spark keep a core busy, tests of a sink mostly wait for a server. Side by side they use both
cores, and only half of the workers start a JVM. A worker that finds no file of its own kind takes one
of the other.
"""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

WITH_SPARK = ("tests/spark/", "tests/demo/", "tests/packaging/", "tests/docs/test_tutorial.py")
"""Where tests with the mark ``spark`` are: the scheduler knows the names of tests, not their marks."""


def with_spark(path: str) -> bool:
    """Whether a test file is one of those that start Spark.

    Args:
        path: of the file, as pytest names it.
    """
    return path.startswith(WITH_SPARK)


class SparkOnHalf(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Whole files, in the order of collection; Spark's go to workers of odd number first."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        number = int(node.gateway.id.removeprefix("gw"))
        mine = number % 2 == 1
        own = next((path for path in self.workqueue if with_spark(path) == mine), None)
        if own is not None:
            self.workqueue.move_to_end(own, last=False)
        super()._assign_work_unit(node)
