"""What a job is made of, as those who run it read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from abs_core.barriers.checkpoint_rules import Settings
from abs_core.barriers.elements import Observe, unobserved
from abs_core.contracts import RegisterStore
from abs_core.events import Observer, ignore
from abs_core.patience import DEFAULT_PATIENCE, Patience
from abs_embedded.graph import Graph
from abs_embedded.state.contracts import NewBackend, SnapshotStore
from abs_embedded.state.heap import HeapBackend

if TYPE_CHECKING:
    from abs_embedded.state.query import QueryServer  # brings Arrow Flight

HANG_SECONDS = 600.0
"""How long one step of a task may take by default; a sink's default patience is a third of it."""


@dataclass(slots=True)
class JobSpec:
    """A graph with all that it needs to run.

    Args:
        store: for snapshots.
        register: of the job's register; None: the one sink's own, required for a sink that commits
            rows and register at once (``wal``, ``idempotent``).
        backend: for keyed state.
        strategy: the snapshot strategy, by its name in ``alignment.STRATEGIES``.
        savepoints: the store of savepoints.
        retain: checkpoints to keep; always one more than may be in flight.
        restarts: restores of regions without a decided checkpoint in between, before an error ends
            the job.
        capacity: elements in a channel.
        rows: in a channel; a barrier waits for them, so a slow row-by-row job may want fewer. A source
            emits half of it at once: a job on Arrow batches gets slower with fewer.
        hang_after: seconds after which a task in one step is given up, so that it does not stop
            checkpoints, restores and the job's end. Must exceed the patience of each sink, which
            waits within a step. None: never.
        trust_pickles: allow states that are kept as pickles (``PICKLE``) although others may be
            able to write to the snapshot store and so run code in this job.
        queries: serves the keyed state of the running job, read-only.
    """

    graph: Graph
    store: SnapshotStore
    register: RegisterStore | None = None
    backend: NewBackend = HeapBackend
    strategy: str = "aligned"
    settings: Settings = field(default_factory=Settings)
    savepoints: SnapshotStore | None = None
    retain: int = 3
    restarts: int = 3
    capacity: int = 16
    rows: int = 65_536
    hang_after: float | None = HANG_SECONDS
    patience: Patience = DEFAULT_PATIENCE
    observe: Observe = unobserved
    events: Observer = ignore
    trust_pickles: bool = False
    queries: QueryServer | None = None
