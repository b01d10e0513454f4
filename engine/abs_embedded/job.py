"""Runs a graph: the one call that users make."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

from abs_core.births import rules as births
from abs_core.contracts import Committer, RegisterStore, Sink, Stored
from abs_core.coordinator import Coordinator
from abs_core.errors import ConfigError, CorruptionError
from abs_core.model import AND, JobState, job_key
from abs_core.preflight import check, describe
from abs_core.protocol import RunIdentity
from abs_core.several import CompositeCommitter
from abs_embedded.checkpoint_coordinator import Companion
from abs_embedded.graph import check as check_graph
from abs_embedded.jobspec import JobSpec
from abs_embedded.plan import check_schemas
from abs_embedded.recovery import Restore, StoreKeeper, sinks_before
from abs_embedded.sinks import check_decided, sink_of, taken_out
from abs_embedded.threads import Execution

if TYPE_CHECKING:
    from abs_embedded.savepoints import Savepoints  # loaded by jobs that use them

LINEAGE = "embedded"

_log = logging.getLogger("abs_embedded")


@dataclass(slots=True)
class Job(JobSpec):
    """A graph with all that it needs to run: see ``JobSpec`` for its arguments."""

    _asked: Savepoints | None = None

    def run(self, restore: Restore | None = None, stop: Event | None = None) -> None:
        """Recover, and run until the data ends or ``stop`` is set.

        At the end of the data, everything is committed on return.

        Raises:
            ConfigError, SchemaError: the graph cannot run, or the register does not match the
            sinks.
            PreflightError: a sink cannot keep its guarantee.
            AbsError: see ``StoreKeeper.recover`` and ``Execution.run``.
        """
        restore = restore or Restore()
        keeper, companion = self._keeper(restore), Companion()
        with ExitStack() as running:
            if self.savepoints is not None:
                from abs_embedded.savepoints import Savepoints

                savepoints = Savepoints(job_key(self.graph.name), self.savepoints, keeper)
                self._asked = companion = running.enter_context(savepoints)
            try:
                recovered = keeper.recover(restore)
                Execution(self, keeper, recovered, restore, companion).run(stop or Event())
            except CorruptionError:
                # A newer run deletes what this one would restore: then nothing is damaged.
                keeper.coordinator.check_leads()
                raise

    def ask_savepoint(self) -> Future[int]:
        """Make the next checkpoint a savepoint, too: complete, and never deleted by retention.

        Thread-safe. The result is the checkpoint's number once it is decided, or
        ``UnavailableError`` if it fails, or the job ends before. The job continues after a failed
        savepoint, and takes no other unless requested again. Raises ConfigError if the job does not
        run, or has no store for savepoints.
        """
        if self._asked is None:
            raise ConfigError(
                "A savepoint needs a running job with a `savepoints` store.",
                remedy="give the job one, and ask while it runs.",
            )
        return self._asked.ask()

    def _keeper(self, restore: Restore) -> StoreKeeper:
        check_graph(self.graph)
        check_schemas(self.graph)
        sinks = {node.id: node.sink for node in self.graph.nodes.values() if node.sink is not None}
        own = self.register is None
        if own and len(sinks) > 1:
            raise ConfigError(
                f"The graph {self.graph.name} has {len(sinks)} sinks; a job without a `register` "
                "of its own has one.",
                remedy="give the job a register, for instance one of the sinks' own.",
            )
        for id_, sink in sinks.items():
            self._announce(id_, sink)
        register = self.register or next(iter(sinks.values())).register()
        key = job_key(self.graph.name)
        stored, had = self._stored(register, key, restore)
        for id_ in had.keys() & sinks.keys():
            sinks[id_].if_missing(partial(_check_new, stored))
        every = targets = {id_: sinks[id_].target_id for id_ in sorted(sinks)}
        if stored is not None:
            check_decided(stored.state, had, targets)
            # Sinks keep their partitions for the life of the job; new ones come last.
            every = {**had, **targets}

        def fence(state: JobState) -> None:
            for sink in sinks.values():
                sink.fence(state)

        target = AND.join(sorted(set(targets.values())))
        identity = RunIdentity(key, LINEAGE, secrets.token_hex(8), target, restore.adopt)
        coordinator = Coordinator(
            identity,
            register,
            self._committer(sinks, list(every)),
            co_commit=own,
            patience=self.patience,
            observe=self.events,
            fence=fence,
        )
        keep = max(self.retain, self.settings.in_flight + 1)
        return StoreKeeper(self.graph, self.store, coordinator, keep, every)

    def _stored(
        self, register: RegisterStore, key: str, restore: Restore
    ) -> tuple[Stored | None, Mapping[str, str]]:
        """The register's cell, if any, and the sinks that the job had by then."""
        stored = self.patience.retry(lambda: register.load(key))
        while stored is not None:
            try:
                return stored, sinks_before(self.store, stored.state, restore)
            except CorruptionError:
                # A run that is at work may have decided more, and deleted that record.
                before, stored = stored, self.patience.retry(lambda: register.load(key))
                if stored is not None and stored.version == before.version:
                    raise
        return None, {}

    def _committer(self, sinks: Mapping[str, Sink], order: Sequence[str]) -> Committer:
        committers = {id_: sink.committer() for id_, sink in sinks.items()}
        joint = [id_ for id_, c in committers.items() if c.co_commits]
        if not joint:
            numbered = [([n], committers[id_]) for n, id_ in enumerate(order) if id_ in committers]
            return CompositeCommitter(numbered, sink_of, lambda n, c: taken_out(f"number {n}", c))
        if self.register is not None:
            raise ConfigError(
                f"The sink {joint[0]} commits rows and register in one transaction, but the job's "
                "register is another one.",
                remedy="leave out `register`, so that the job has the sink's own; or build the sink "
                "with co_commit=False, where it has that.",
            )
        if order != joint:
            raise ConfigError(
                f"The sink {joint[0]} commits rows and register in one transaction, and cannot "
                f"replace the sink {order[0]}, which the job had before.",
                job=job_key(self.graph.name),
                remedy=f"give it the id {order[0]}; or give the graph a new name.",
            )
        return committers[joint[0]]

    def _announce(self, id_: str, sink: Sink) -> None:
        """Check the sink's preflight, and log its guarantee."""
        key, tasks = job_key(self.graph.name), self.graph.nodes[id_].parallelism
        findings = self.patience.retry(lambda: sink.preflight(key, tasks))
        for warning in check(findings, key, _log):
            _log.warning(warning)
        _log.info(describe(f"sink {id_}", sink.guarantee(), key))


def _check_new(stored: Stored | None) -> None:
    """Raise IdentityError if the job has committed: then a target that is missing was not new."""
    error = births.missing_target(None if stored is None else stored.state)
    if error is not None:
        raise error
