"""What stands in for brokers where none is asked: librdkafka's client, and a register's session."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException, TopicCollection, Uuid

from abs_clients.kafka.cluster import cluster
from abs_core.contracts import Version
from abs_core.errors import FencedError, UnavailableError
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import Records
from abs_sinks.kafka.register.session import Rows
from abs_sinks.kafka.register.topic import Record, StoredCell, StoredCells, version_after


@dataclass
class Broker:
    """Stands for librdkafka's client and the broker that it asks.

    Args:
        knows: topics that it has heard of.
        code: what it answers to a question for their settings; 0: ``configs``.
        configs: of every topic.
        more: settings of one topic, beside ``configs``.
        ids: numbers of topics; another one has no id.
        partitions: of every topic.
        refuses: what it answers to a request that would change something; 0: it does it.
    """

    knows: Sequence[str] = ()
    code: int = 0
    configs: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    ids: Mapping[str, int] = field(default_factory=dict)
    partitions: int = 1
    replicas: int = 1
    refuses: int = 0
    looks: list[list[str]] = field(default_factory=list)
    """The topics that it was asked for."""
    made: list[str] = field(default_factory=list)
    set: list[tuple[str, str]] = field(default_factory=list)
    """Settings that it was asked to set."""

    def describe_topics(self, wanted: TopicCollection, **_: Any) -> dict[str, Future[Any]]:
        names: list[str] = list(wanted.topic_names)
        self.looks.append(names)
        return {name: self._described(name) for name in names}

    def _described(self, name: str) -> Future[Any]:
        if name not in self.knows:
            return answer(error=KafkaError.UNKNOWN_TOPIC_OR_PART)
        return answer(
            SimpleNamespace(
                name=name,
                partitions=[
                    SimpleNamespace(id=number, replicas=list(range(self.replicas)))
                    for number in range(self.partitions)
                ],
                authorized_operations=None,
                topic_id=Uuid(0, self.ids[name]) if name in self.ids else None,
                is_internal=False,
            )
        )

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        return {resource: self._configs(resource.name) for resource in resources}

    def _configs(self, name: str) -> Future[Any]:
        texts = {**self.configs, **self.more.get(name, {})}
        entries = {key: SimpleNamespace(name=key, value=text) for key, text in texts.items()}
        return answer(entries, error=self.code)

    def create_topics(self, topics: list[Any], **_: Any) -> dict[str, Future[Any]]:
        self.made += [topic.topic for topic in topics]
        return {topic.topic: answer(error=self.refuses) for topic in topics}

    def incremental_alter_configs(self, resources: list[Any]) -> dict[Any, Future[Any]]:
        for resource in resources:
            self.set += [(entry.name, entry.value) for entry in resource.incremental_configs]
        return {resource: answer(error=self.refuses) for resource in resources}

    def poll(self, seconds: float) -> int:
        return 0


def answer(value: object = None, error: int = 0) -> Future[Any]:
    future: Future[Any] = Future()
    if error:
        future.set_exception(KafkaException(KafkaError(error)))
    else:
        future.set_result(value)
    return future


def id_of(number: int) -> str:
    """A topic's id as ``TopicFacts`` has it, for a number of ``Broker.ids``."""
    return str(UUID(int=number))


@dataclass(frozen=True)
class Fate:
    """How a change of a cell ends.

    Args:
        error: while its rows are sent; nothing of it is there.
        answered: False: its commit gets no reply.
        done: whether it takes effect; only where no reply comes.
        then: the version that another writes right after it; "": another deletes the cell.
    """

    error: Exception | None = None
    answered: bool = True
    done: bool = True
    then: str | None = None


def fenced(then: str | None = None) -> Fate:
    """Another has opened the producer meanwhile."""
    return Fate(FencedError("another has opened it (on purpose)", remedy="none."), then=then)


@dataclass
class Registers:
    """Stands in for a register's session: the topic is in this process.

    Args:
        fates: of one change after another; then all is well.
        before: what others do before a change looks at its cell, one by one.
    """

    fates: list[Fate] = field(default_factory=list)
    before: list[Callable[[], object]] = field(default_factory=list)
    cells: dict[str, StoredCell] = field(default_factory=dict)
    tried: list[tuple[str, str]] = field(default_factory=list)
    """Key and version of each change that was tried."""
    sent: list[list[bytes]] = field(default_factory=list)
    """The rows' values of each change that took effect, if it had rows."""
    opened: list[tuple[str, int]] = field(default_factory=list)
    """Key and timeout in ms of each producer."""
    kept: Any = None
    """The producer that is open already."""
    reads: int = 0

    def used_by(self, options: KafkaOptions) -> Self:
        """It is this process's session for these options, until its clusters are closed."""
        cluster(options.kafka).learn(("register", options.registertopic), self)
        return self

    def put(self, key: str, text: str, version: Version | None = None) -> Version:
        """As another process does."""
        there = self.cells.get(key)
        version = version or version_after(None if there is None else there.version)
        self.cells[key] = StoredCell(version, text)
        return version

    def turn(self, key: str) -> AbstractContextManager[None]:
        if self.before:
            self.before.pop(0)()
        return nullcontext()

    def topic(self) -> Any:
        return SimpleNamespace(max_message_bytes=None)

    def topic_exists(self) -> bool:
        return True

    def tail(self, partition: int) -> Self:
        return self

    def load(self, key: str, *_: object) -> StoredCell | None:
        return self.cells.get(key)

    def wrote(self, records: Sequence[Record], reads: int) -> None:
        """Nothing: ``load`` knows it."""

    def producer(self, key: str) -> Any:
        return self.kept

    def open_producer(self, options: KafkaOptions, key: str, timeout_ms: int) -> Opened:
        self.opened.append((key, timeout_ms))
        return Opened(self, key)


@dataclass
class Opened:
    """The fenced producer of a cell, and its transaction with all its senders."""

    registers: Registers
    key: str
    cell: StoredCell | None = None
    usable: bool = True
    has_written: bool = True
    rows: int = 0
    fate: Fate = Fate()
    records: Sequence[Record] = ()
    values: list[bytes] | None = None

    @property
    def version(self) -> Version | None:
        return None if self.cell is None else self.cell.version

    def prepare(self, rows: Rows | None, records: Sequence[Record], partition: int) -> None:
        self.fate = self.registers.fates.pop(0) if self.registers.fates else Fate()
        self.records = records
        written = dict(records)[self.key.encode()]
        if written is not None:
            self.registers.tried.append((self.key, json.loads(written)["cell"]))
        if self.fate.error is not None:
            self._others()
            raise self.fate.error
        if rows is not None:
            self.values = []
            transactions: Any = self
            rows.send(transactions)

    def commit(self) -> None:
        if self.fate.answered or self.fate.done:
            cells = StoredCells()
            for key, value in self.records:
                cells.apply(key, value)
            cell = cells.get(self.key, "here")
            if cell is None:
                self.registers.cells.pop(self.key, None)
            else:
                self.registers.cells[self.key] = cell
            if self.values is not None:
                self.registers.sent.append(self.values)
        self._others()
        if not self.fate.answered:
            raise UnavailableError("no reply came (on purpose)")

    def _others(self) -> None:
        if self.fate.then == "":
            del self.registers.cells[self.key]
        elif self.fate.then is not None:
            self.registers.put(self.key, "theirs", self.fate.then)

    def give_up(self) -> None:
        """Nothing of it is there."""

    def to(self, topic: str | None, patience: float) -> Self:
        return self

    def send(self, records: Records) -> None:
        assert self.values is not None
        self.values += records.values.to_pylist()

    def flush(self) -> None:
        """Everything is acknowledged."""
