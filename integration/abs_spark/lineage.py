"""``abs_spark.openlineage``: each committed epoch as one run of OpenLineage, with all its targets.

Lineage that is read off Spark's plans does not see what ``foreachBatch`` writes. The commit knows it:
which targets, and how many rows. A run's id is made from the epoch's, so that telling it again after a
crash changes nothing, and an epoch that is replayed tells nothing.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from abs_clients.extras import importing
from abs_core.events import Committed, RolledForward, Written
from abs_core.release import RELEASE

with importing("abs_spark.openlineage"):
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import (
        InputDataset,
        Job,
        OutputDataset,
        Run,
        RunEvent,
        RunState,
    )
    from openlineage.client.generated.job_type_job import JobTypeJobFacet
    from openlineage.client.generated.output_statistics_output_dataset import (
        OutputStatisticsOutputDatasetFacet,
    )
    from openlineage.client.generated.processing_engine_run import ProcessingEngineRunFacet

_RUNS = UUID("9c1f4c39-6f3a-5d25-8f2c-6a9a9f1e4b70")
_PRODUCER = f"urn:abs-sinks:{RELEASE}"
_MAX_WAITING = 1000
_SECONDS = 1.0
"""Seconds that an epoch waits for the collector; after them the event is sent in the background."""

_log = logging.getLogger("abs_spark.start")


class Lineage:
    """An observer; see ``abs_spark.openlineage``."""

    def __init__(
        self, namespace: str, inputs: Sequence[tuple[str, str]], client: OpenLineageClient
    ) -> None:
        self._namespace = namespace
        self._inputs = [InputDataset(space, name) for space, name in inputs]
        self._client = client
        self._waiting: queue.Queue[tuple[list[RunEvent], threading.Event]] = queue.Queue(
            _MAX_WAITING
        )
        threading.Thread(target=self._send, name="abs-openlineage", daemon=True).start()

    def __call__(self, event: object) -> None:
        if not isinstance(event, Committed | RolledForward):
            return
        sent = threading.Event()
        try:
            self._waiting.put_nowait((self._run(event), sent))
        except queue.Full:
            _log.warning(
                "job %s: epoch %d is not told to OpenLineage: %d epochs wait for its collector",
                event.job,
                event.epoch,
                _MAX_WAITING,
            )
            return
        sent.wait(_SECONDS)

    def _run(self, event: Committed | RolledForward) -> list[RunEvent]:
        """The run's begin and end, both told when it has ended."""
        ended, took = datetime.now(UTC), 0.0
        if isinstance(event, Committed):
            took = event.write_seconds + event.pre_commit_seconds + event.seconds
        engine = ProcessingEngineRunFacet(RELEASE, name="abs-sinks", producer=_PRODUCER)
        run = Run(str(uuid5(_RUNS, event.id)), {"processing_engine": engine})
        kind = JobTypeJobFacet("STREAMING", "SPARK", jobType="JOB", producer=_PRODUCER)
        job = Job(self._namespace, event.job, {"jobType": kind})
        outputs = [_output(target) for target in event.targets]
        began = ended - timedelta(seconds=took)

        def told(at: datetime, state: RunState, outputs: list[OutputDataset]) -> RunEvent:
            return RunEvent(
                eventTime=at.isoformat(),
                producer=_PRODUCER,
                run=run,
                job=job,
                eventType=state,
                inputs=self._inputs,
                outputs=outputs,
            )

        return [told(began, RunState.START, []), told(ended, RunState.COMPLETE, outputs)]

    def _send(self) -> None:
        while True:
            events, sent = self._waiting.get()
            try:
                for event in events:
                    self._client.emit(event)
            except Exception as error:  # noqa: BLE001 - whatever its transport raises
                job, run = events[0].job.name, events[0].run.runId
                _log.warning("job %s: the run %s is not told to OpenLineage: %s", job, run, error)
            sent.set()


def _output(target: Written) -> OutputDataset:
    facets: dict[str, Any] = {}
    if target.rows is not None:
        rows = OutputStatisticsOutputDatasetFacet(
            rowCount=target.rows, size=target.bytes, producer=_PRODUCER
        )
        facets["outputStatistics"] = rows
    return OutputDataset(target.namespace, target.dataset, outputFacets=facets)


def openlineage(
    namespace: str = "abs-sinks",
    inputs: Sequence[tuple[str, str]] = (),
    client: OpenLineageClient | None = None,
) -> Lineage:
    """An observer that tells OpenLineage each committed epoch: one run, with its targets and rows.

    For ``abs_spark.listener``, or for ``ABS_OBSERVE``. It waits one second at most for the collector;
    one that does not answer costs lineage, never an epoch. An epoch that fails is no run; the run that
    finishes it later is.

    Args:
        namespace: of the jobs.
        inputs: namespace and name of each dataset that the query reads, by OpenLineage's rules.
        client: default: one that OpenLineage's own variables configure (``OPENLINEAGE_URL``, ...).
    """
    return Lineage(namespace, inputs, client or OpenLineageClient())
