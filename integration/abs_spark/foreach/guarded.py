"""What functions for ``foreachBatch`` share: after a batch that failed, they write nothing more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyspark

from abs_core.errors import ConfigError, OptionError
from abs_core.model import job_key
from abs_spark.checkpoint.certificates import location
from abs_spark.checkpoint.failures import FailedBatch
from abs_spark.checkpoint.spark_files import query_id
from abs_spark.end_watcher import end_watcher
from abs_spark.foreach.process import process_id, runs
from abs_spark.foreach.query import Running, running
from abs_spark.foreach.run import EpochRun
from abs_spark.foreach.tasks import Obscured
from abs_spark.names import RunName
from abs_spark.open_sinks import OpenSinks
from abs_spark.process.logs import show_logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_pandas() -> None:
    """Refuse to go on without pandas, which ``mapInArrow`` asks for in each release of PySpark.

    Raises:
        ConfigError: it is not installed.
    """
    if find_spec("pandas") is None:
        bound = "<3" if pyspark.__version__.startswith("3.") else ">=2.2"
        raise ConfigError(
            f"PySpark {pyspark.__version__} passes rows to Python only where pandas is installed.",
            remedy=f'pip install "pandas{bound}", for the driver and every executor.',
        )


class BatchFunction(ABC):
    """Writes each micro-batch of one query. It belongs to the driver's process, which Spark calls.

    Attributes:
        sinks: what it writes to; each shows itself.
        run: the query's present run; None before its first batch.
    """

    sinks: Sequence[object]
    job: str | None
    checkpoint: str
    adopt: str | None
    run: EpochRun | None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one micro-batch. When it returns, it is committed in every target.

        Raises:
            AbsError: the epoch is in no target, or will be finished by the next run; restart.
        """
        show_logs()
        query = self._running(df, batch_id)
        job = job_key(self.job or query.query)
        runs.of(query.query, query.run, job).check(job, batch_id)
        try:
            self._write_batch(df, query, batch_id)
        except BaseException as error:
            # The query ends with this error, unless the calling function catches it: then Spark
            # counts the batch as written. So later batches are refused: in this run by what the
            # process remembers, in the next one by the note in the checkpoint.
            history = runs.of(query.query, query.run, job)
            runs.note(query.query, query.run, job, history.and_failed(batch_id, error))
            FailedBatch(self.checkpoint, job).note(batch_id, partly=batch_id in history.finished)
            if self.run is not None and self.run.name.run == query.run:
                self._end(self.run)
            raise

    def __getstate__(self) -> dict[str, Obscured]:
        """Under Spark Connect it is pickled to the server, without its open run."""
        return {"obscured": Obscured({**self.__dict__, **self._fresh()})}

    def __setstate__(self, state: dict[str, Obscured]) -> None:
        self.__dict__.update(state["obscured"].open())

    def _fresh(self) -> dict[str, Any]:
        """What a run has made, as before its first batch."""
        return {"run": None}

    @abstractmethod
    def _write_batch(self, df: DataFrame, query: Running, batch_id: int) -> None: ...

    def _end(self, run: EpochRun) -> None:  # noqa: B027 - not all have something open
        """End a run in which a batch has failed."""

    def _running(self, df: DataFrame, batch_id: int) -> Running:
        """The query and run of the call. If they are unknown, the batch is recorded as failed, too.

        Such an error is easily lost with the thread in which the function was called.
        """
        try:
            return running(df.sparkSession, batch_id, self.checkpoint, process_id())
        except OptionError:
            raise  # the checkpoint belongs to another query, and its note would, too
        except ConfigError:
            owner = self.job or query_id(self.checkpoint)
            if owner is not None:
                FailedBatch(self.checkpoint, job_key(owner)).note(batch_id)
                if self.run is not None:
                    self.run.look_again()
            raise

    def _attach(self, query: Running, opened: Callable[[], OpenSinks]) -> EpochRun:
        """The query's present run, which is kept from batch to batch."""
        name = RunName(
            job_key(self.job or query.query), query.query, query.run, location(self.checkpoint)
        )
        if self.run is not None and self.run.name == name:
            return self.run
        if self.run is not None:
            self.run.close()
            self.run = None
        sinks = opened()
        try:
            self.run = EpochRun(name, sinks, self.checkpoint, self.adopt)
        except BaseException:
            sinks.close()
            raise
        end_watcher.functions[query.query] = self
        return self.run
