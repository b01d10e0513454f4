"""Finds the snapshot to restore, by the register, and checks that it may be restored.

The register's last decision is rolled forward first, then exactly that snapshot is restored. A
newer completion record without a decision does not count. An older snapshot is restored by consent
only, because the sinks have committed past it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from abs_core.barriers.checkpoint_rules import Pending
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import (
    AbsError,
    ConfigError,
    CorruptionError,
    FencedError,
    IdentityError,
    ProtocolError,
    TargetError,
)
from abs_core.model import Committable, JobState, Wrote
from abs_embedded.assembly import Part
from abs_embedded.graph import Graph
from abs_embedded.snapshot import (
    Record,
    by_operator,
    fingerprint,
    load,
    read_record,
)
from abs_embedded.sources import forget
from abs_embedded.state.contracts import SnapshotStore
from abs_embedded.state.retention import sweep

_log = logging.getLogger("abs_embedded")


@dataclass(frozen=True, slots=True)
class Restore:
    """A start other than from the last decision.

    Args:
        checkpoint: of ``source``, or of the job's own store without one.
        source: the store that holds a savepoint.
        go_back: consent to restore an older snapshot than the sinks are committed to: what they
            have committed since is written again.
        drop_state: consent to lose state of missing operators, and states that an operator's code
            does not declare any more; of a sink: to leave behind undecided handles.
        drop_records: consent to lose records in transit to operators that the graph does not have
            any more: unaligned snapshots hold such, and aligned ones of loops.
        adopt: consent to write to another set of targets, by the token in the refusal.
    """

    checkpoint: int | None = None
    source: SnapshotStore | None = None
    go_back: bool = False
    drop_state: bool = False
    drop_records: bool = False
    adopt: str | None = None


@dataclass(frozen=True, slots=True)
class Recovered:
    """The start of a run.

    Args:
        first: number of its first checkpoint; above what is restored, and above every number in
            the store.
        restored: number of the restored snapshot; None at the job's first start.
        parts: by operator; empty at the job's first start.
        source: the store of the parts' blobs, if it is not the job's own.
    """

    state: JobState
    first: int
    parts: dict[str, list[Part]]
    source: SnapshotStore | None
    restored: int | None = None


@dataclass(slots=True)
class StoreKeeper:
    """Completion records in a snapshot store, decisions in the job's register. See ``Keeper``.

    Args:
        keep: number of retained checkpoints.
        sinks: all that the job has had, in the order of their partitions, and their targets.
    """

    graph: Graph
    store: SnapshotStore
    coordinator: Coordinator
    keep: int = 3
    sinks: Mapping[str, str] = field(default_factory=dict)
    _state: JobState | None = None
    written: Record = field(init=False)
    """The completion record of the checkpoint that was written last."""
    _decided: list[Record] = field(default_factory=list)
    _undecided: Sequence[int] = ()
    """Records whose process died between the record and the decision. They are deleted once a higher
    number is decided: then a delete that comes late, or of a run that was paused, hits no other one."""
    _pickled: set[str] = field(default_factory=set)

    def recover(self, restore: Restore) -> Recovered:
        """Take the job over: raise the generation, roll forward, sweep, find the snapshot.

        Raises:
            FencedError: a newer run has taken over.
            RegisterLostError: the store holds snapshots that the register does not know.
            CorruptionError: the snapshot is damaged; the record or blob is named.
            ProtocolError: an older snapshot is requested without consent.
            ConfigError: it holds state that no operator claims.
        """
        with suppress(CorruptionError):  # is told of below, where that record matters
            for newest in self.store.completed()[-1:]:
                self.coordinator.check_begun(read_record(self.store.record(newest)).certificate)
        before, _ = self.coordinator.begin(0, gaps_allowed=True)
        recovered = self.restored(self.coordinator.roll_forward(), restore)
        _log.info(
            "job %s, generation %d: %s; %d handles that were decided were rolled forward",
            before.job,
            before.generation,
            "starts without a snapshot"
            if recovered.restored is None
            else f"restores checkpoint {recovered.restored}",
            sum(len(decision.handles) for decision in before.open),
        )
        return recovered

    def restored(self, state: JobState, restore: Restore) -> Recovered:
        """The snapshot to restore under the present generation."""
        self._state, last = state, state.last_decided
        completed = self.store.completed()
        undecided = [number for number in completed if last is None or number > last]
        for number in undecided:
            record = read_record(self.store.record(number))
            if record.register != state.register:
                raise IdentityError(
                    f"The snapshot store holds checkpoint {number}, which belongs to another "
                    "register; the job's own register does not know it.",
                    job=state.job,
                    remedy="restore the register; or, for a new job, use an empty snapshot store.",
                )
            self._check_newest(record)
        self._undecided = undecided
        numbers = [int(key.partition("/")[0]) for key in self.store.blobs()]
        wanted = last if restore.checkpoint is None else restore.checkpoint
        references = (number for number in (last, wanted) if number is not None)
        first = max([*numbers, *completed, *references, -1]) + 1
        if wanted is None:
            return Recovered(state, first, {}, restore.source)
        source = restore.source or self.store
        content = source.record(wanted)
        record = read_record(content)
        self._check(state, wanted, content, record, restore)
        self._check_operators(record, state, restore)
        self._check_records(record, source, state, restore)
        if record.max_parallelism != self.graph.max_parallelism:
            raise ProtocolError(
                f"The snapshot has {record.max_parallelism} key groups, the graph "
                f"{self.graph.max_parallelism}.",
                remedy="max_parallelism can't be changed once a job has state.",
            )
        if record.may_hold_pickles:
            reason = "an earlier release wrote it" if record.pickled is None else record.pickled
            _log.info("job %s: checkpoint %d may hold pickles: %s", state.job, wanted, reason)
        parts = {id_: p for id_, p in load(record, source).items() if id_ in self.graph.nodes}
        return Recovered(state, first, parts, restore.source, wanted)

    def write(self, pending: Pending, handles: Sequence[Committable]) -> str:
        assert self._state is not None, "a keeper writes once it has recovered"
        parts = by_operator({task: ack.part for task, ack in pending.acks.items()})
        last = self._decided[-1].checkpoint if self._decided else self._state.last_decided
        record = Record(
            self.graph.name,
            self._state.register,
            pending.checkpoint,
            parts,
            self.sinks,
            handles,
            self.graph.max_parallelism,
            self._state.generation,
            last,
        )
        self.written = replace(record, pickled=sorted(self._pickled))
        content = self.written.to_bytes()
        try:
            self.store.complete(pending.checkpoint, content, self.written.blobs)
        except (CorruptionError, ProtocolError):
            # A newer run deletes what this one builds on: then no checkpoint can succeed any more.
            with suppress(TargetError):
                self.coordinator.check_leads()
            raise
        return fingerprint(content)

    def note_pickled(self, states: Iterable[str]) -> None:
        """Note in later records that snapshots hold these states as pickles; logged once."""
        new = sorted({*states} - self._pickled)
        self._pickled.update(new)
        if new:
            _log.warning(
                "job %s keeps states as pickles: %s; anyone who can write to its snapshot store "
                "can run code in the job",
                self.graph.name,
                ", ".join(new),
            )

    def decide(self, checkpoint: int, handles: Sequence[Committable], fingerprint: str) -> None:
        shares = [Wrote(handle.rows, handle) for handle in handles]
        self.coordinator.commit(Report(checkpoint, shares, fingerprint, gaps_allowed=True))
        self._decided.append(self.written)

    def retain(self, checkpoint: int) -> None:
        del self._decided[: -self.keep]

        def blobs_of(content: bytes) -> Iterable[str]:
            record = read_record(content)
            self._check_newest(record)
            return [ref.key for ref in record.blobs]

        try:
            for number in self._undecided:
                self.store.retire(number)
            self._undecided = ()
            sweep(self.store, blobs_of, self.keep)
            if len(self._decided) == self.keep:
                forget(self.graph, self._decided[0].operators)
        except Exception as error:  # noqa: BLE001 - stores and sources may be anybody's
            _log.warning(
                "job %s, checkpoint %d: data that is no longer needed could not be deleted; "
                "nothing is lost, and the next checkpoint tries again: %s",
                self.graph.name,
                checkpoint,
                error,
                exc_info=not isinstance(error, AbsError),
            )

    def _check_newest(self, record: Record) -> None:
        """Raise FencedError if the record is a newer run's: then nothing may be deleted."""
        assert self._state is not None, "looked at once there is a state"
        if record.generation > self._state.generation:
            raise FencedError(
                f"Checkpoint {record.checkpoint} has generation {record.generation}, and this run "
                f"has {self._state.generation}.",
                job=self._state.job,
                remedy="none: a newer run has taken over; this process must stop.",
            )

    def _check_operators(self, record: Record, state: JobState, restore: Restore) -> None:
        lost = sorted(set(record.operators) - set(self.graph.nodes))
        sinks = ", ".join(id_ for id_ in lost if id_ in record.sinks)
        left = "handles that they pre-committed and no decision names"
        note = f" Of these, {sinks} are sinks: {left} may stay." if sinks else ""
        if lost and not restore.drop_state:
            raise ConfigError(
                "The snapshot holds state of operators that the graph does not have: "
                f"{', '.join(lost)}.{note}",
                job=state.job,
                remedy="give them their old ids; or, to drop that state for good, allow `drop_state`.",
            )
        if sinks:
            _log.warning(
                "job %s continues without the sinks %s, by consent. All decided epochs are "
                "committed; %s may still be in doubt in their targets: `abs in-doubt list` shows "
                "them; a start with the sink under its old id, or `abs in-doubt abort`, ends them",
                state.job,
                sinks,
                left,
            )

    def _check_records(
        self, record: Record, source: SnapshotStore, state: JobState, restore: Restore
    ) -> None:
        """Refuse records in transit to an operator that is missing, or is a source now."""
        there = {id_ for id_, node in self.graph.nodes.items() if node.source is None}
        gone = {
            id_: parts
            for id_, parts in record.operators.items()
            if id_ not in there and any(part.log for part in parts)
        }
        if not gone:
            return
        lost = load(replace(record, operators=gone), source)
        rows = sum(len(rows) for parts in lost.values() for part in parts for _, rows in part.log)
        loss = f"{rows} records that were on their way to {', '.join(sorted(gone))}"
        if not restore.drop_records:
            raise ConfigError(
                f"The snapshot holds {loss}, which the graph no longer has.",
                job=state.job,
                remedy="give it its old id; or run the old graph until a checkpoint with "
                "strategy='aligned', then change it; or, to lose these records for good, allow "
                "`drop_records`.",
            )
        _log.warning("job %s loses %s, by consent", state.job, loss)

    def _check(
        self, state: JobState, wanted: int, content: bytes, record: Record, restore: Restore
    ) -> None:
        last = state.last_decided
        # Numbers say nothing of what another job, or an earlier life of this one, has committed.
        own = record.register == state.register
        if wanted != last or not own:
            if not restore.go_back:
                whose = "" if own else f" of another register ({record.register}, job {record.job})"
                raise ProtocolError(
                    f"The sinks are not committed to checkpoint {wanted}{whose}, but to "
                    f"{last}{'' if own else f' of register {state.register}'}.",
                    job=state.job,
                    remedy="restore that one; or consent to `go_back`: the rows committed since "
                    f"checkpoint {wanted} are then written again.",
                )
            rows = sum(epoch.rows for epoch in state.recent if epoch.epoch > wanted)
            _log.warning(
                "job %s goes back from checkpoint %s to %d, by consent: the sinks have committed "
                "%d rows or more since, which are written again",
                state.job,
                last,
                wanted,
                rows,
            )
            return
        recent = state.record(wanted)
        if restore.source is None and (
            recent is None or recent.fingerprint != fingerprint(content)
        ):
            raise CorruptionError(
                f"The completion record of checkpoint {wanted} is not the one that was decided.",
                job=state.job,
                epoch=wanted,
                remedy="restore the snapshot store that belongs to this register.",
            )


def sinks_before(store: SnapshotStore, state: JobState, restore: Restore) -> Mapping[str, str]:
    """All sinks of the job, in the order of their partitions, and their targets.

    Raises CorruptionError if the last decided completion record is damaged or gone, without consent
    to go back to another one.
    """
    if state.last_decided is None:
        return {}
    try:
        return read_record(store.record(state.last_decided)).sinks
    except CorruptionError:
        if not restore.go_back or restore.checkpoint is None:
            raise
        return read_record((restore.source or store).record(restore.checkpoint)).sinks
