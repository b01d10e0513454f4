"""The content of a snapshot; persists it and reads it again.

A task's keyed state is a few blobs; the completion record names all of them, and holds the lists,
the shape of the graph and the handles of the sinks. The decision follows, and contains the record's
digest: a record without a decision is not a snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from hashlib import sha256
from itertools import groupby
from typing import Any

import pyarrow as pa

from abs_core.barriers.elements import Copy, TaskId
from abs_core.certificate import Certificate
from abs_core.codec import committable_to_json
from abs_core.model import Committable, job_key
from abs_core.strictjson import MAX_NUMBER, of, parse, reading, text, version, whole
from abs_core.strictjson import fields as parsed_fields
from abs_embedded.assembly import Part
from abs_embedded.context import TaskState
from abs_embedded.state.contracts import BlobRef, Snapshot, SnapshotStore, StateHandle, StateOwner
from abs_embedded.state.operator_state import Contents
from abs_embedded.state.savepoint import blob_prefix, ipc_bytes, ipc_table

VERSION = 1


@dataclass(frozen=True, slots=True)
class DurablePart(TaskState[StateHandle]):
    """One task's part of a snapshot in the completion record."""

    log: tuple[tuple[int, BlobRef], ...]

    @property
    def blobs(self) -> list[BlobRef]:
        keyed = () if self.keyed is None else self.keyed.blobs
        return [*keyed, *(ref for _, ref in self.log)]

    def to_json(self) -> list[Any]:
        keyed = None if self.keyed is None else self.keyed.to_json()
        return [keyed, self.lists.to_json(), [[port, astuple(ref)] for port, ref in self.log]]

    @classmethod
    def from_json(cls, value: object) -> DurablePart:
        """Raises ``ValueError`` for anything that ``to_json`` did not make."""
        keyed, lists, log = of(list, value)
        return cls(
            None if keyed is None else StateHandle.from_json(keyed),
            Contents.from_json(lists),
            tuple(_logged(entry) for entry in of(list, log)),
        )


def _logged(value: object) -> tuple[int, BlobRef]:
    port, ref = of(list, value)
    return whole(port), BlobRef.from_json(ref)


def persist(copy: Copy, store: SnapshotStore, place: StateOwner, *, whole: bool) -> DurablePart:
    """Make a task's copy durable in ``store``; its lists go into the completion record.

    ``whole``: in the format that every backend reads, for a savepoint; else in the backend's own.
    """
    state: TaskState[Snapshot] = copy.state
    keyed = None
    if state.keyed is not None:
        keyed = state.keyed.savepoint(store) if whole else state.keyed.persist()
    prefix = blob_prefix(copy.checkpoint, place)
    refs: list[tuple[int, BlobRef]] = []
    by_port = sorted(copy.log, key=lambda entry: entry[0])
    # A stream of Arrow is of one schema, what comes into a port need not be: a union's is not.
    for (port, schema), run in groupby(by_port, lambda entry: (entry[0], entry[1].schema)):
        content = ipc_bytes([batch for _, batch in run], schema)
        refs.append((port, store.put(f"{prefix}-log{port}.{len(refs)}.arrow", content)))
    return DurablePart(keyed, state.lists, tuple(refs))


def by_operator(parts: Mapping[TaskId, DurablePart]) -> dict[str, list[DurablePart]]:
    """The parts of each operator, in the order of its tasks."""
    operators: dict[str, list[DurablePart]] = {}
    for task, part in sorted(parts.items()):
        operators.setdefault(task.operator, []).append(part)
    return operators


@dataclass(frozen=True, slots=True)
class Record:
    """A completion record.

    Args:
        register: id of the register that may decide it.
        sinks: all that the job has had, in the order of their partitions, and their targets; ""
            if not noted.
        generation: of the run that wrote it; 0 if not noted.
        decided: the newest checkpoint that was decided before.
        pickled: the states that are kept as pickles; None if not noted.
    """

    job: str
    register: str
    checkpoint: int
    operators: Mapping[str, Sequence[DurablePart]]
    sinks: Mapping[str, str]
    handles: Sequence[Committable]
    max_parallelism: int
    generation: int = 0
    decided: int | None = None
    pickled: Sequence[str] | None = None

    @property
    def may_hold_pickles(self) -> bool:
        """Whether reading its values may run code; true if not noted."""
        return self.pickled is None or bool(self.pickled)

    @property
    def certificate(self) -> Certificate:
        """Its facts about the job's register."""
        return Certificate(
            job_key(self.job), self.register, "", self.generation, self.decided, self.checkpoint
        )

    @property
    def blobs(self) -> list[BlobRef]:
        return [ref for parts in self.operators.values() for part in parts for ref in part.blobs]

    def to_bytes(self) -> bytes:
        value = {field.name: getattr(self, field.name) for field in fields(self)} | {
            "version": VERSION,
            "sinks": list(self.sinks.items()),
            "handles": [committable_to_json(handle) for handle in self.handles],
            "operators": {i: [part.to_json() for part in of] for i, of in self.operators.items()},
        }
        return json.dumps(value, sort_keys=True).encode()


def read_record(content: bytes) -> Record:
    """The record without its handles, which are in the register.

    Raises CorruptionError for other content, or an unknown version.
    """
    with reading("A completion record", "restore the snapshot store from a backup"):
        value = parsed_fields(parse(content))
        version(value["version"], VERSION)
        operators = parsed_fields(value["operators"])
        return Record(
            job=text(value["job"]),
            register=text(value["register"]),
            checkpoint=whole(value["checkpoint"], 0, MAX_NUMBER),
            operators={
                id_: [DurablePart.from_json(part) for part in of(list, parts)]
                for id_, parts in operators.items()
            },
            sinks=dict(_sink(one) for one in of(list, value["sinks"])),
            handles=(),
            max_parallelism=whole(value["max_parallelism"], 1),
            # Earlier releases noted none of these.
            generation=whole(value.get("generation", 0), 0, MAX_NUMBER),
            decided=None
            if value.get("decided") is None
            else whole(value["decided"], 0, MAX_NUMBER),
            pickled=_names(value.get("pickled")),
        )


def _names(value: object) -> list[str] | None:
    return None if value is None else [text(name) for name in of(list, value)]


def _sink(value: object) -> tuple[str, str]:
    if isinstance(value, str):
        return value, ""  # earlier releases noted the ids alone
    id_, target = of(list, value)
    return text(id_), text(target)


def fingerprint(content: bytes) -> str:
    """The completion record's digest for the decision."""
    return f"sha256:{sha256(content).hexdigest()}"


def load(record: Record, store: SnapshotStore) -> dict[str, list[Part]]:
    """The parts of a snapshot for tasks to restore; backends read keyed state later.

    Raises CorruptionError, with the blob's key, if a blob is damaged or gone.
    """

    def log(part: DurablePart) -> list[tuple[int, pa.RecordBatch]]:
        return [
            (port, batch)
            for port, ref in part.log
            for batch in ipc_table(store.get(ref), ref.key).to_batches()
        ]

    return {id_: [Part(part, log(part)) for part in of] for id_, of in record.operators.items()}
