"""A job that is stopped and started again keeps its state, whatever backend keeps it."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from abs_clients.postgres.address import Server
from abs_embedded import Job, Settings
from abs_embedded.state.contracts import NewBackend
from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.rocks import RocksBackends
from abs_embedded.stores.postgres.mvcc import mvcc_backends
from abs_embedded.stores.postgres.two_phase import two_phase_backends
from tests.embedded.bench import Bench
from tests.embedded.jobs.counting import graph

ROWS = 4_000


def stopped_and_started_again(bench: Bench, backend: NewBackend) -> None:
    """Stop after the third decision, twice; then let it end."""
    for stops in range(3):
        stop, decided = Event(), []

        def observe(what: str, task: object, checkpoint: int) -> None:
            if what == "committed":
                decided.append(checkpoint)  # noqa: B023
                if stops < 2 and len(decided) == 3:  # noqa: B023
                    stop.set()  # noqa: B023

        Job(
            graph(bench.sink, rows=ROWS, batch_rows=10),
            bench.store,
            bench.sink.register(),
            backend=backend,
            settings=Settings(interval=0.05),
            observe=observe,
        ).run(stop=stop)
    bench.check(ROWS)


@pytest.mark.parametrize("kind", ["heap", "rocks"])
def test_state_of_a_backend_in_this_process_is_kept(tmp_path: Path, kind: str) -> None:
    backend = HeapBackend if kind == "heap" else RocksBackends(tmp_path / "rocks")
    stopped_and_started_again(Bench(tmp_path), backend)


@pytest.mark.services
@pytest.mark.parametrize("kind", ["mvcc", "2pc"])
def test_state_in_postgresql_is_kept(tmp_path: Path, database: str, kind: str) -> None:
    server = Server.at(database)
    backend = mvcc_backends(server) if kind == "mvcc" else two_phase_backends(server)
    stopped_and_started_again(Bench(tmp_path), backend)
