"""Finds the query, run and micro-batch for which ``foreachBatch`` calls the function."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyspark

from abs_core.errors import ConfigError, OptionError
from abs_spark.checkpoint.spark_files import check_holds_query, fingerprint, is_stateless, query_id
from abs_spark.process.executor import EPOCH, QUERY, RUN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODES = ("append", "update", "complete")


@dataclass(frozen=True, slots=True)
class Running:
    """A query's present run.

    Args:
        query: the query id; it lives in the checkpoint.
        run: Spark's id of this start of the query; never a job group that a user's function set.
        mode: the output mode in lower case; None if Spark does not report it, as under Connect.
        java: Java's object of the query; None if there is none, as under Connect.
    """

    query: str
    run: str
    mode: str | None = None
    java: Any = field(default=None, compare=False, repr=False)


def running(spark: SparkSession, batch: int, checkpoint: str, process: str) -> Running:
    """The query that calls.

    Classic Spark names it in local properties of the thread. Connect has none, and the session of a
    batch does not know its query. There the query's id is the one in its checkpoint, which must have
    the batch's offsets, and its run is the process, as Spark starts one for each run of a query.

    Args:
        process: an id that no other process, and no earlier run in this one, has.

    Raises:
        ConfigError: the query is unknown: the function was not called by ``foreachBatch``.
        OptionError: ``checkpoint`` belongs to another query, or to none.
    """
    context: Any = getattr(spark, "_sc", None)  # of a classic session; None under Connect
    if context is not None:
        query, group, epoch = (context.getLocalProperty(name) for name in (QUERY, RUN, EPOCH))
        if not query or epoch != str(batch):
            raise _no_query(batch)
        run, mode, java = _started(spark, query)
        if run is None:
            run = _of_spark(group, batch)
        if not _owns(query, checkpoint):
            check_holds_query(checkpoint, _root(java))
        return Running(query, run, mode, java)
    if pyspark.__version__.startswith("3."):
        raise ConfigError(
            "PySpark 3.5 loses the errors of foreachBatch under Spark Connect: a failed batch "
            "would count as written.",
            remedy="use PySpark 4.0 or newer, or a classic session.",
        )
    owner = query_id(checkpoint)
    if owner is None:
        raise ConfigError(
            "Under Spark Connect the query is found by its checkpoint, which cannot be read from here.",
            remedy="give the function (abs_spark.epoch, abs_spark.once) the query's "
            "checkpointLocation, where the server's Python reads it.",
        )
    if fingerprint(checkpoint, batch) is None:
        raise _no_query(batch)  # Spark writes them before it calls
    return Running(owner, f"connect-{process}")


def output_mode(reported: str | None, wanted: str | None, checkpoint: str) -> str:
    """The query's output mode, in lower case.

    If Spark does not report it (as under Connect), a query that keeps state must be given it, because
    each batch of ``complete`` would be appended. A query without state cannot have ``complete``, which
    needs an aggregation, and for it ``update`` gives the same rows as ``append``.

    Args:
        reported: by Spark.
        wanted: by the user.

    Raises:
        OptionError: it is unknown; or the given one cannot be true.
    """
    if reported is not None:
        if wanted not in (None, reported):
            raise OptionError(
                f"outputMode={wanted!r} is not the query's output mode, which is {reported}.",
                remedy=f"give abs_spark.epoch outputMode={reported!r}, or leave it out.",
            )
        return reported
    stateless = is_stateless(checkpoint)
    if wanted == "complete" and stateless:
        raise OptionError(
            "outputMode='complete' is given, but the query has no aggregation: each batch would "
            "replace everything that was written before.",
            remedy="give abs_spark.epoch the mode that the query has.",
        )
    if wanted is not None:
        return wanted
    if stateless:
        return "append"
    raise OptionError(
        "The query keeps state, and Spark does not report its output mode here (as under Spark "
        "Connect): with outputMode complete each batch is the whole result, which must not be "
        "appended.",
        remedy="give abs_spark.epoch the query's mode: outputMode='append', 'update' or 'complete'.",
    )


def _owns(query: str, checkpoint: str) -> bool:
    """Whether the checkpoint is this query's; False if it cannot be read. A finding is kept.

    Raises:
        OptionError: it is another query's.
    """
    if (query, checkpoint) in _seen_to_own:
        return True  # Spark writes the id once; in a remote file system a read takes long
    owner = query_id(checkpoint)
    if owner is None:
        return False
    if owner != query:
        raise OptionError(
            f"The function was given checkpointLocation={checkpoint}, which is the checkpoint of "
            f"another query: of {owner}, and this query is {query}.",
            remedy="give it the same checkpointLocation as the query's own option.",
        )
    _seen_to_own.add((query, checkpoint))
    return True


_seen_to_own: set[tuple[str, str]] = set()


def _started(spark: SparkSession, query: str) -> tuple[str | None, str | None, Any]:
    """The query's run, output mode and Java object; None if this Spark keeps them elsewhere."""
    from py4j.protocol import Py4JError

    # foreachBatch gets a session of the query, which does not know the query. Spark's shared state,
    # which all sessions of the application have, does.
    inner: Any = spark
    try:
        running = inner._jsparkSession.sharedState().activeStreamingQueries()
        started = running.get(_uuid(inner._jvm, query))
        run, mode = str(started.runId().toString()), str(started.outputMode().toString()).lower()
    except (Py4JError, AttributeError, TypeError):
        return None, None, None
    return run, mode, started


@lru_cache(maxsize=16)
def _uuid(jvm: Any, query: str) -> Any:
    """Java's UUID of a query's id; kept, as it takes five calls into the JVM."""
    return jvm.java.util.UUID.fromString(query)


def _root(java: Any) -> str | None:
    """Where the query has its checkpoint; None if this Spark does not tell."""
    from py4j.protocol import Py4JError

    try:
        return None if java is None else str(java.resolvedCheckpointRoot())
    except (Py4JError, TypeError):
        return None


def _of_spark(group: str | None, batch: int) -> str:
    """The run, from the job group that Spark sets for it and that anybody may change.

    Raises:
        ConfigError: the group is not Spark's, so two runs could not be distinguished.
    """
    if not group:
        raise _no_query(batch)
    try:
        return str(UUID(group))
    except ValueError:
        raise ConfigError(
            f"The function that is given to foreachBatch has set the job group {group!r}, but "
            "this Spark identifies a query's run only by its job group.",
            remedy="remove setJobGroup from it; setJobDescription may stay.",
        ) from None


def _no_query(batch: int) -> ConfigError:
    return ConfigError(
        f"The function was called for batch {batch} outside of that batch of a streaming query "
        f"(PySpark {pyspark.__version__}).",
        remedy="give it to foreachBatch, or call it inside your own function, in the thread that Spark "
        "calls, with the batch id that Spark gives.",
    )
