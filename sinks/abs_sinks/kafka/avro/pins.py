"""Pins a job's schema ids, so that a replayed epoch is written with the ids of its first attempt.

A registry moves on between an attempt and its replay. So a run notes the ids that it writes with in a
cell of its own in the register's topic, before its first record. **A run's first epoch may be a replay:
it keeps the ids that are noted; those that the registry has now hold from the next epoch on.** Only
where the noted ones do not fit the columns any more (the query was changed) they are replaced at once.
The ids of a run never change while it lasts. The keys' id never changes at all (``keys``).

The cell is written once per run, under the generation, so a task of an older run cannot change it. It
belongs to the job's register and the sink's number: both stay when the job is renamed, and another job
of its name has another register.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Self

from abs_clients.avro.schema import Node, fingerprint, parsed
from abs_clients.kafka.cluster import cluster
from abs_core import strictjson
from abs_core.contracts import Conflict, Task
from abs_core.errors import ContentionError, FencedError, SchemaError
from abs_core.sinkmap import number_of
from abs_sinks.kafka.avro.choose import Chooser, Ids
from abs_sinks.kafka.keys import KEY
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.register.topic import fields_of, reading

FORMAT = 1
TRIES = 20


@dataclass(frozen=True, slots=True)
class Pins:
    """The ids of a job.

    Args:
        generation: of the run that noted them.
        since: the epoch from which on ``ids`` hold.
        before: those of the epoch before; None: there is none.
    """

    generation: int
    since: int
    ids: Ids
    before: Ids | None = None

    def at(self, epoch: int) -> Ids:
        return self.ids if epoch >= self.since or self.before is None else self.before

    def to_text(self) -> str:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({**fields, "format": FORMAT}, sort_keys=True)

    @classmethod
    def from_text(cls, job: str, text: str) -> Self:
        """Raises:
        CorruptionError: it cannot be read, or a newer release wrote it.
        """
        with reading("The note of a job's schema ids in the register's topic", job):
            fields = fields_of(text, FORMAT)
            before = fields["before"]
            return cls(
                strictjson.whole(fields["generation"]),
                strictjson.whole(fields["since"]),
                _ids(fields["ids"]),
                None if before is None else _ids(before),
            )


def _ids(document: object) -> Ids:
    return {name: strictjson.whole(number) for name, number in strictjson.fields(document).items()}


class KeptKeys:
    """The ``KeySchemas`` of a sink.

    Args:
        chooser: of its columns.
    """

    def __init__(self, options: KafkaOptions, task: Task, chooser: Chooser) -> None:
        self._options = options
        self._task = task
        self._chooser = chooser

    def first(self, *, again: bool) -> int:
        # Releases up to 0.2 noted the keys' id with those of the values.
        cell = KafkaRegister(self._options).load_text(cell_of(self._task, self._options))
        held = None if cell is None else Pins.from_text(self._task.job, cell.text)
        if held is not None and not again:
            return held.at(self._task.epoch)[KEY]
        return self._chooser.id_of(KEY, register=self._options.formats.register)

    def fingerprint(self, number: int) -> str:
        self._chooser.forget()
        self._chooser.check({KEY: number})
        node, text = self._chooser.node(number), self._options.formats.schema(KEY)
        if text is not None and fingerprint(parsed(text)) != fingerprint(node):
            raise SchemaError("The option key.schema is another one now.")
        if self._options.write == "changes":
            _check_one_form(node, KEY)
        return fingerprint(node)


def _check_one_form(node: Node, path: str) -> None:
    """Raise SchemaError where equal keys may have different bytes."""
    several = node.kind == "union" and len(node.branches) > 1
    if several or node.kind == "map":
        which = "which of its types a value has" if several else "the order of its entries"
        raise SchemaError(
            f"{path} is a {node.kind} in the schema of keys, and {which} is part of the bytes: the "
            "changes of one key would have several.",
            remedy="take another type, such as an array of structs in one order, or a string.",
        )
    for field in node.fields:
        _check_one_form(field.node, f"{path}.{field.name}")
    for inner in node.inner:
        _check_one_form(inner, path)


def pinned(options: KafkaOptions, task: Task, chooser: Chooser, keys: int | None = None) -> Ids:
    """The schema ids of the task's epoch; noted by the first task of a run that asks.

    Args:
        keys: the id that keys keep.

    Raises:
        SchemaError: the registry has no schema that fits.
        FencedError: a newer run has noted its own.
        TargetError: the registry or a broker does not answer.
    """
    connections = cluster(options.kafka)
    key = ("schemas", options.registertopic, cell_of(task, options))
    pins: Pins | None = connections.learnt(key)
    if pins is None or pins.generation != task.generation:
        patience = replace(options.patience, job=task.job)
        pins = patience.retry(lambda: _noted(options, task, chooser, keys))
        connections.learn(key, pins)
    return pins.at(task.epoch)


def _noted(options: KafkaOptions, task: Task, chooser: Chooser, keys: int | None) -> Pins:
    chooser.forget()
    store, key = KafkaRegister(options), cell_of(task, options)
    for _ in range(TRIES):
        cell = store.load_text(key)
        held = None if cell is None else Pins.from_text(task.job, cell.text)
        if held is not None and held.generation >= task.generation:
            if held.generation > task.generation:
                raise FencedError(
                    f"Run {held.generation} of the job has begun; this task is of run "
                    f"{task.generation}.",
                    handle=task.handle,
                )
            return held
        now = chooser.ids(register=options.formats.register, key=keys)
        new = Pins(task.generation, task.epoch, now)
        old = None if held is None else held.at(task.epoch)
        if old is not None and keys is not None:
            old = {**old, KEY: keys}
        if old is not None and old != now and _fits(chooser, old):
            new = replace(new, since=task.epoch + 1, before=old)
        swapped = store.swap_text(key, None if cell is None else cell.version, new.to_text())
        if not isinstance(swapped, Conflict):
            return new
    raise ContentionError(
        "The note of a job's schema ids is being written by others.", job=task.job
    )


def _fits(chooser: Chooser, ids: Ids) -> bool:
    try:
        chooser.check(ids)
    except SchemaError:
        return False
    return True


def cell_of(task: Task, options: KafkaOptions) -> str:
    """The key of the cell of a job's sink, and of the subjects that it writes with."""
    formats, topic = options.formats, options.topic or "*"
    subjects = [formats.subject(column, topic) for column in formats.columns]
    # No job's key has a plus sign.
    return "+".join([task.register, "schemas", str(number_of(task.handle)), topic, *subjects])
