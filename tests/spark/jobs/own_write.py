"""A job with a write of its own: JSON files -> ``foreachBatch`` -> ``abs_spark.once`` -> a recipe.

    python own_write.py settings.json

``settings.json`` holds the fields of ``OwnJob``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import abs_spark
from tests.spark.jobs.tend_lake import EXTENSIONS, IN_SPARK, PACKAGES

RECIPES = Path(__file__).parents[3] / "docs" / "examples" / "once"
DELTA = {
    "spark.jars.packages": PACKAGES[0],
    "spark.jars.excludes": IN_SPARK,
    "spark.sql.extensions": EXTENSIONS[0],
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""A session that has delta-spark."""


@dataclass(frozen=True)
class OwnJob:
    """What to run.

    Args:
        recipe: a module of ``docs/examples/once``.
        place: of its target.
        line: at the nth line of the recipe's ``write`` the process kills itself; 0: never.
        died: the file that it makes before; while it is there, no process kills itself.
        stands: it stands still there instead, until it has been stopped and goes on.
        stateful: the query keeps state.
        continuous: it runs until it is stopped.
    """

    recipe: str
    place: str
    input: str
    checkpoint: str
    register: str
    scratch: str
    job: str = "own"
    promise: str | None = None
    adopt: str | None = None
    line: int = 0
    died: str = ""
    stands: bool = False
    stateful: bool = False
    continuous: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def recipe(name: str, place: str) -> tuple[Callable[[Any, Any], None], Callable[[str], int] | None]:
    """The two functions of a recipe."""
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: tuple[Callable[[Any, Any], None], Callable[[str], int] | None] = module.guarded(place)
    return made


def start(spark: SparkSession, job: OwnJob) -> StreamingQuery:
    """Start the job's query."""
    write, applied = recipe(job.recipe, job.place)
    function = abs_spark.once(
        _killed_at(job, write) if job.line else write,
        job=job.job,
        register=job.register,
        applied=applied,
        checkpointLocation=job.checkpoint,
        promise=job.promise,
        adopt=job.adopt,
    )
    rows = (
        spark.readStream.schema("account bigint, amount bigint")
        .option("maxFilesPerTrigger", 1)
        .json(job.input)
    )
    if job.stateful:
        rows = rows.dropDuplicates(["account", "amount"])
    writer = rows.writeStream.foreachBatch(function).option("checkpointLocation", job.checkpoint)
    trigger = {"processingTime": "0 seconds"} if job.continuous else {"availableNow": True}
    return writer.trigger(**trigger).start()


def _killed_at(job: OwnJob, write: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """The write, in which the process dies before its nth line."""
    code, left = write.__code__, job.line

    def traced(frame: FrameType, event: str, value: object) -> Any:
        nonlocal left
        if frame.f_code is not code:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                Path(job.died).touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGSTOP if job.stands else signal.SIGKILL)
        return traced

    def killed(df: Any, token: Any) -> None:
        if not Path(job.died).exists():
            sys.settrace(traced)
        try:
            write(df, token)
        finally:
            sys.settrace(None)

    return killed


def main(settings: str) -> None:
    from tests.spark.jobs.session import small_session

    job = OwnJob(**json.loads(Path(settings).read_text()))
    spark = small_session(Path(job.scratch), **(DELTA if job.recipe == "delta_spark_merge" else {}))
    start(spark, job).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
