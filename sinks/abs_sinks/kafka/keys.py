"""What the bytes and the place of a topic's keys depend on: noted once, and kept.

A key is its bytes. A tombstone whose key has other bytes, or lies in another partition, removes
nothing from a compacted topic, and nobody is told. So before a job writes the first record with an Avro
key, or the first change, it notes how keys are written in a cell of its own in the register's topic,
which is compacted and never expires. Later starts write keys in exactly that way, or are refused.

The cell belongs to the job's register, the sink's number and the topic. It outlives restarts, ``adopt``
and a new name of the job, but not the register: a job that begins anew on a topic that has records
takes the newest schema, unless the option ``key.schema`` names one. A topic that was deleted and made
again has no keys yet, and its note is replaced.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Protocol, Self

from abs_clients.avro.settings import AVRO, BYTES
from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.topics import topics_in_time
from abs_core import strictjson
from abs_core.contracts import Conflict, Task
from abs_core.errors import ContentionError, SchemaError
from abs_core.sinkmap import number_of
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.register.topic import fields_of, reading

_ELSEWHERE = "write to another topic under another job name, from the beginning."

FORMAT = 1
TRIES = 20

KEY = "key"
_WHY = (
    "A key with other bytes, or in another partition, is another key: its deletes would not remove "
    "what the topic has"
)


class KeySchemas(Protocol):
    """What a registry says of the keys' schema; ``SchemaError`` where it has none that fits."""

    def first(self, *, again: bool) -> int:
        """The id for the first note; ``again`` if the topic was made again."""
        ...

    def fingerprint(self, number: int) -> str:
        """Of the schema of an id, if it fits the column and what the options say."""
        ...


@dataclass(frozen=True, slots=True)
class KeyNote:
    """How keys are written.

    Args:
        kind: ``bytes`` or ``avro``.
        schema: the id; None: keys are bytes.
        fingerprint: of that schema, which tells it from another registry's schema of the same id.
        partitioner, partitions: what chooses a key's partition, of a topic of changes; else None.
        topic: the topic's id, None where the brokers have none.
    """

    kind: str
    schema: int | None = None
    fingerprint: str | None = None
    partitioner: str | None = None
    partitions: int | None = None
    topic: str | None = None

    def to_text(self) -> str:
        return json.dumps({**asdict(self), "format": FORMAT}, sort_keys=True)

    @classmethod
    def from_text(cls, job: str, text: str) -> Self:
        """Raises:
        CorruptionError: it cannot be read, or a newer release wrote it.
        """
        with reading("The note of a topic's keys in the register's topic", job):
            said = fields_of(text, FORMAT)
            schema, partitions = said["schema"], said["partitions"]
            return cls(
                strictjson.text(said["kind"]),
                None if schema is None else strictjson.whole(schema),
                _text_or_none(said["fingerprint"]),
                _text_or_none(said["partitioner"]),
                None if partitions is None else strictjson.whole(partitions),
                _text_or_none(said["topic"]),
            )


def _text_or_none(value: object) -> str | None:
    return None if value is None else strictjson.text(value)


def are_noted(options: KafkaOptions) -> bool:
    """Whether the bytes of this sink's keys are its own concern."""
    return options.write == "changes" or KEY in options.formats.columns


def keep_keys(options: KafkaOptions, task: Task, schemas: KeySchemas | None) -> KeyNote:
    """How this job writes keys to the topic; noted by the first task that asks.

    Args:
        schemas: of keys in Avro; None: keys are bytes.

    Raises:
        SchemaError: the options, the columns, the registry or the topic would write them otherwise.
        TargetError: the registry or a broker does not answer.
    """
    here, cell = cluster(options.kafka), cell_of(task, options)
    learnt: tuple[int, KeyNote] | None = here.learnt((cell, options.registertopic))
    if learnt is None or learnt[0] != task.generation:
        patience = replace(options.patience, job=task.job)
        learnt = task.generation, patience.retry(lambda: _kept(options, task, schemas))
        here.learn((cell, options.registertopic), learnt)
    return learnt[1]


def _kept(options: KafkaOptions, task: Task, schemas: KeySchemas | None) -> KeyNote:
    store, key = KafkaRegister(options), cell_of(task, options)
    now = _present(options)
    for _ in range(TRIES):
        cell = store.load_text(key)
        held = None if cell is None else KeyNote.from_text(task.job, cell.text)
        if held is not None and held.topic == now.topic:
            _check(held, now, options, schemas)
            return held
        new = now
        if schemas is not None:
            number = schemas.first(again=held is not None)
            new = replace(now, schema=number, fingerprint=schemas.fingerprint(number))
        swapped = store.swap_text(key, None if cell is None else cell.version, new.to_text())
        if not isinstance(swapped, Conflict):
            return new
    raise ContentionError("The note of a topic's keys is being written by others.", job=task.job)


def _present(options: KafkaOptions) -> KeyNote:
    """What a run would note now, without the schema."""
    note = KeyNote(AVRO if KEY in options.formats.columns else BYTES)
    facts = None
    if options.topic is not None:
        facts = topics_in_time(options.kafka, [options.topic], again=True).get(options.topic)
        if facts is None:
            raise no_topic(options.topic)
        note = replace(note, topic=facts.id)
    if options.write == "changes":
        chosen = options.kafka.get("partitioner") or "murmur2_random"
        note = replace(note, partitioner=_FAMILY.get(chosen, chosen))
        note = replace(note, partitions=None if facts is None else facts.partitions)
    return note


def no_topic(name: str) -> SchemaError:
    """The error of a topic that is missing."""
    return SchemaError(
        f"Topic {name} does not exist.",
        remedy="create it with the partitions that it needs; this sink does not create topics.",
    )


_FAMILY = {f"{name}_random": name for name in ("murmur2", "consistent", "fnv1a")}
"""Partitioners that differ for records without a key only."""


def _check(held: KeyNote, now: KeyNote, options: KafkaOptions, schemas: KeySchemas | None) -> None:
    """Raise SchemaError if a key would not be what it was."""
    topic = options.topic or "*"
    if held.kind != now.kind:
        raise SchemaError(
            f"The keys of topic {topic} were written with key.format={held.kind} so far, and now it is "
            f"{now.kind}. {_WHY}.",
            remedy=f"set key.format={held.kind}, or {_ELSEWHERE}",
        )
    for setting, before, after, back in (
        ("kafka.partitioner", held.partitioner, now.partitioner, "set it as it was, or "),
        ("the number of partitions", held.partitions, now.partitions, ""),
    ):
        if None not in (before, after) and before != after:
            raise SchemaError(
                f"For topic {topic} {setting} was {before} when the job began to write changes, and is "
                f"{after} now. {_WHY}.",
                remedy=f"{back}{_ELSEWHERE}",
            )
    if schemas is None or held.schema is None:
        return
    so_far = f"The keys of topic {topic} were written with schema {held.schema} so far"
    remedy = (
        f"let the key's columns, key.schema and the registry be as schema {held.schema} has them, or "
        f"{_ELSEWHERE}"
    )
    try:
        same = schemas.fingerprint(held.schema) == held.fingerprint
    except SchemaError as error:
        raise SchemaError(
            f"{so_far}. {error.what} {_WHY}.",
            remedy=remedy,
        ) from error
    if not same:
        raise SchemaError(
            f"{so_far}, and the registry has another schema under this id now. {_WHY}.",
            remedy=remedy,
        )


def cell_of(task: Task, options: KafkaOptions) -> str:
    """The key of the note's cell. No job's key has a plus sign."""
    return "+".join([task.register, "keys", str(number_of(task.handle)), options.topic or "*"])
