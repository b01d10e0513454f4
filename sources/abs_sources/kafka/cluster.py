"""What a source asks the brokers: which topics there are, and where their partitions begin and end."""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from abs_core.attempts import side_topic
from abs_core.errors import UnavailableError
from abs_sources.kafka.client import admin_settings, log, principal
from abs_sources.kafka.errors import is_let_in_nowhere, mapped, translated
from abs_sources.kafka.offsets import Partition

T = TypeVar("T")

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]

REQUEST_SECONDS = 2.0
"""How long the first request may take; each next one may take twice as long."""

PATIENCE_SECONDS = 60.0
"""For how long a cluster that does not answer, or elects leaders, is asked again."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is now.

    Args:
        id: unique for ever; a topic that is made anew under the same name has another.
    """

    id: str
    partitions: tuple[int, ...]


class Cluster:
    """Asks a cluster. Thread-safe; every call is a request to the brokers, of some milliseconds.

    Args:
        settings: librdkafka's.

    Every call raises UnavailableError where no answer comes in ``PATIENCE_SECONDS``, RefusedError
    where the brokers refuse for good, and OptionError where a setting is none.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._who = principal(settings)
        self._events: deque[KafkaError] = deque(maxlen=16)
        self._settings: dict[str, Any] = {
            **admin_settings(settings),
            "error_cb": self._events.append,
        }
        self._admin = self._new_client()
        uncommitted = settings.get("isolation.level") == "read_uncommitted"
        self._isolation = (
            IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED
        )

    def _new_client(self) -> AdminClient:
        with translated("setting up the client"):
            return AdminClient(self._settings, logger=log)

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the topics that exist."""
        wanted = sorted(names)
        return self._patiently(lambda s: self._describe(wanted, s)) if wanted else {}

    def matching(self, pattern: str) -> dict[str, Topic]:
        """The topics whose whole name matches, without Kafka's internal ones and side topics."""

        def find(seconds: float) -> list[str]:
            with translated("listing the topics", self._who):
                there = self._admin.list_topics(timeout=seconds).topics
            return [n for n in there if re.fullmatch(pattern, n) and not _is_internal(n)]

        return self.topics(self._patiently(find))

    def first(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The oldest offset of each that is still there."""
        return self._offsets(dict.fromkeys(partitions, _EARLIEST))

    def end(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Where reading ends now.

        Under ``read_committed`` this is the last stable offset: before it no transaction is open.
        """
        return self._offsets(dict.fromkeys(partitions, _LATEST))

    def at(self, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
        """The first offset with this time (milliseconds) or a later one; None where there is none."""
        found = self._offsets({p: OffsetSpec.for_timestamp(ms) for p, ms in times.items()})
        return {p: None if offset < 0 else offset for p, offset in found.items()}

    def _offsets(self, asked: Mapping[Partition, OffsetSpec]) -> dict[Partition, int]:
        return self._patiently(lambda s: self._list_offsets(asked, s)) if asked else {}

    def _list_offsets(
        self, asked: Mapping[Partition, OffsetSpec], seconds: float
    ) -> dict[Partition, int]:
        with translated("asking for offsets", self._who):
            answers = self._admin.list_offsets(
                {TopicPartition(topic, number): spec for (topic, number), spec in asked.items()},
                isolation_level=self._isolation,
                request_timeout=seconds,
            )
            found = {(p.topic, p.partition): each.result().offset for p, each in answers.items()}
        for (topic, partition), offset in found.items():
            if offset == OFFSET_INVALID:  # librdkafka's answer, without an error, for a dead leader
                raise UnavailableError(
                    f"Kafka: the leader of {topic}/{partition} does not tell its offsets.",
                    remedy="see that the partition has a leader; then start again.",
                )
        return found

    def _describe(self, names: list[str], seconds: float) -> dict[str, Topic]:
        with translated("looking up the topics", self._who):
            answers = self._admin.describe_topics(TopicCollection(names), request_timeout=seconds)
        found = {}
        for name, answer in answers.items():
            with translated(f"looking up the topic {name}", self._who):
                try:
                    said = answer.result()
                except KafkaException as error:
                    if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                        continue
                    raise
            numbers = tuple(sorted(partition.id for partition in said.partitions))
            found[name] = Topic(str(said.topic_id), numbers)
        return found

    def _patiently(self, ask: Callable[[float], T]) -> T:
        retrying = Retrying(
            retry=retry_if_exception_type(UnavailableError),
            stop=stop_after_delay(PATIENCE_SECONDS),
            wait=wait_random_exponential(0.05, max=2),
            reraise=True,
        )
        doubling = itertools.accumulate(
            itertools.repeat(REQUEST_SECONDS), lambda s, _: min(2 * s, PATIENCE_SECONDS)
        )
        return retrying(lambda: self._let_in(ask, next(doubling)))

    def _let_in(self, ask: Callable[[float], T], seconds: float) -> T:
        """Ask; where no answer comes because the brokers let us not in, that is the error.

        librdkafka tells of a refused password or certificate as an event, and goes on trying. And it
        goes on to wait for a controller that has died, for as long as it remembers it as that: the
        next request is by a new client.
        """
        try:
            answer = ask(seconds)
        except UnavailableError as error:
            self._admin.poll(0.1)
            told = next((e for e in reversed(self._events) if is_let_in_nowhere(e)), None)
            self._admin = self._new_client()
            if told is None:
                raise
            raise mapped(told, "connecting", self._who) from error
        self._admin.poll(0)
        self._events.clear()  # who gets an answer is let in: what was refused before has passed
        return answer


def _is_internal(topic: str) -> bool:
    return topic.startswith("__") or topic.endswith(side_topic(""))


_CLUSTERS: dict[tuple[int, tuple[tuple[str, str], ...]], Cluster] = {}
_LOCK = threading.Lock()


def cluster(settings: Mapping[str, str]) -> Cluster:
    """The process's one client with these settings; a process that was forked has its own."""
    key = (os.getpid(), tuple(sorted(settings.items())))
    with _LOCK:
        if key not in _CLUSTERS:
            _CLUSTERS[key] = Cluster(settings)
        return _CLUSTERS[key]
