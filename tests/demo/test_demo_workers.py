"""The demo's job goes on where Spark had no Python worker in its 10 seconds, as on a busy machine."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from pyspark.errors import StreamingQueryException

from abs_demo.job import TRIES, run_with_workers

NO_WORKER = (
    "Job aborted due to stage failure: SparkException: Python worker failed to connect back."
)


@dataclass
class Queries:
    """Stands in for a session and its two queries: the first one fails as each try says."""

    failures: list[str | None]
    active: list[Query] = field(default_factory=list)
    tries: int = 0

    @property
    def streams(self) -> Queries:
        return self

    def run(self) -> None:
        assert not self.active, "queries of the last try still run"
        self.tries += 1
        failure = self.failures.pop(0)
        if failure is None:
            return
        self.active = [Query(self)]
        raise StreamingQueryException(failure)


@dataclass
class Query:
    of: Queries

    def stop(self) -> None:
        self.of.active = []


def run(failures: list[str | None]) -> Queries:
    queries = Queries(failures)
    run_with_workers(queries, queries.run)  # type: ignore[arg-type]
    return queries


@pytest.mark.parametrize("failed", range(TRIES))
def test_queries_without_a_worker_in_time_are_stopped_and_run_again(failed: int) -> None:
    queries = run([NO_WORKER] * failed + [None])
    assert (queries.tries, queries.active) == (failed + 1, [])


def test_queries_that_never_get_a_worker_end_with_sparks_error() -> None:
    failures: list[str | None] = [NO_WORKER] * (TRIES + 1)
    with pytest.raises(StreamingQueryException, match="failed to connect back"):
        run(failures)
    assert len(failures) == 1, f"{TRIES} tries, and no more"


def test_queries_that_fail_for_another_reason_are_not_run_again() -> None:
    failures: list[str | None] = ["FencedError: a newer run has taken over", None]
    with pytest.raises(StreamingQueryException, match="FencedError"):
        run(failures)
    assert failures == [None]
