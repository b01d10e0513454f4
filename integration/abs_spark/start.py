"""Runs the preflight and prints the guarantee when a query starts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from abs_core.model import Guarantee
from abs_core.preflight import check, describe
from abs_spark.names import Announced
from abs_spark.process.lru_cache import LruCache
from abs_spark.target import Target

_log = logging.getLogger("abs_spark.start")

_announced: LruCache[tuple[Target, str], bool] = LruCache()


def announce(target: Target, job: str | None) -> Announced:
    """On the driver, before the first row: check the target; of a new job, show the guarantee.

    Spark asks its planner process for a writer at every epoch, without saying for which run. So the
    check is once in the life of that process, and the guarantee is shown here for a job that has no
    register yet. If a job continues, the commit process shows it, with the run's first commit.

    Args:
        job: the register key; None if the driver cannot know it: then the tasks check.

    Raises:
        PreflightError: the target cannot keep the promise.
        TargetError: it refuses, or could not be reached for as long as the option patience says.
    """
    if job is None or _announced.get((target, job)):
        return Announced()
    sink = target.sink()
    # Spark's planner is a new process now and then, also in the middle of a query: an outage of some
    # seconds must not end the query here, where a commit would go on after it.
    patience = replace(target.options.patience, job=job)
    try:
        warn(check(patience.retry(lambda: sink.preflight(job)), job, _log))
        is_new = patience.retry(lambda: sink.register().load(job)) is None
        if is_new:
            show(target, sink.guarantee(), job)
    finally:
        sink.close()
    _announced.put((target, job), True)
    return Announced(checked=True, shown=is_new)


def warn(warnings: Sequence[str]) -> None:
    """Log each, once."""
    for warning in dict.fromkeys(warnings):
        _log.warning(warning)


def told_by_rows(job: str, replay: str = "digest") -> str:
    """The warning for a checkpoint from which an epoch's input cannot be read.

    Args:
        replay: the option.
    """
    return (
        f"job {job}: the driver cannot read the checkpoint's offsets; a replayed epoch is recognised "
        f"by {_BY[replay]}. Set the option checkpointLocation, in a file system that pyarrow can read."
    )


def show(target: Target, guarantee: Guarantee, job: str) -> None:
    """Print the sink's guarantee under these options."""
    if target.options.common.replay == "token":
        guarantee = replace(guarantee, limits=(*guarantee.limits, _TRUSTED))
    _log.info("%s", describe(target.format.name, guarantee, job))


_TRUSTED = (
    "replay=token: a batch under a token that is already committed counts as a repetition, and "
    "its rows are not compared: other rows under that token are lost"
)

_BY = {
    "digest": "a digest of its rows, which takes the tasks some time",
    "count": "its row count only",
}
