"""One epoch of a job after another, by sink and coordinator only: no Spark."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence

import pyarrow as pa

from abs_core.contracts import Sink, Task
from abs_core.coordinator import Coordinator, Report
from abs_core.model import Wrote, job_key
from abs_core.protocol import RunIdentity, Write
from abs_sinks.postgres import PostgresOptions, PostgresSink
from benchmarks.meter import metered
from benchmarks.ratios import Sample
from benchmarks.target import Target


class Job:
    """A job whose tasks run in turn, in this process.

    Args:
        pid: of a server that is no child of this process.
    """

    def __init__(self, sink: Sink, name: str, pid: int | None = None) -> None:
        self._sink, self._pid, self.epoch = sink, pid, 0
        who = RunIdentity(job_key(name), secrets.token_hex(8), secrets.token_hex(8), sink.target_id)
        register, committer = sink.register(), sink.committer()
        self._coordinator = Coordinator(who, register, committer, fence=sink.fence)

    def run(self, parts: Sequence[Sequence[pa.RecordBatch]]) -> Sample:
        """One epoch with a task for each part."""
        number = self.epoch
        self.epoch += 1
        with metered(self._pid) as taken:
            began = time.perf_counter()
            shares = [self._task(number, part, batches) for part, batches in enumerate(parts)]
            written = time.perf_counter() - began
            self._coordinator.commit(Report(number, shares, fingerprint=secrets.token_hex(16)))
            seconds = time.perf_counter() - began
        rows = sum(share.rows for share in shares)
        found = ("write", written), ("commit", seconds - written)
        return Sample(seconds, taken.cpu_s, rows, found)

    def close(self) -> None:
        self._sink.close()

    def _task(self, number: int, part: int, batches: Sequence[pa.RecordBatch]) -> Wrote:
        state, planned = self._coordinator.begin(number)
        assert isinstance(planned, Write), "each epoch is new"
        who = state.register, state.job, state.generation
        writer = self._sink.writer(Task(*who, number, part, secrets.token_hex(6)))
        for batch in batches:
            writer.write(batch)
        return Wrote(sum(batch.num_rows for batch in batches), writer.pre_commit())


def postgres_job(target: Target, name: str, options: Mapping[str, str], schema: pa.Schema) -> Job:
    """A job that writes to a table.

    Args:
        options: besides those of the target.
    """
    given = PostgresOptions.parse({"stateschema": "abs", **target.options, **options})
    return Job(PostgresSink(given, schema), name, target.pid)
