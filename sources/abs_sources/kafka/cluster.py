"""What a source asks the brokers: which topics there are, and where their partitions begin and end."""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
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

from abs_clients.kafka.attempts import side_topic
from abs_core.errors import UnavailableError
from abs_sources.kafka.client import admin_settings, client_log, principal
from abs_sources.kafka.errors import is_auth_failure, to_abs_error, translate_errors
from abs_sources.kafka.offsets import Partition

T = TypeVar("T")

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]

REQUEST_SECONDS = 2.0
"""How long the first request may take; each next one may take twice as long."""

PATIENCE_SECONDS = 60.0
"""For how long a cluster that does not answer, or elects leaders, is asked again."""

LATE_SECONDS = 5.0
"""For how much longer than a request may take its answer is waited for."""

UNHEARD_PAUSES = (0.05, 0.1, 0.2, 0.5, *[1.0] * 9)
"""In seconds, before each further look for a topic that should be there; then it counts as gone."""


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
        self._gone: set[tuple[str, str | None]] = set()
        uncommitted = settings.get("isolation.level") == "read_uncommitted"
        self._isolation = (
            IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED
        )

    def _new_client(self) -> AdminClient:
        with translate_errors("setting up the client"):
            return AdminClient(self._settings, logger=client_log)

    def topics(
        self, names: Iterable[str], awaited: Mapping[str, str | None] | None = None
    ) -> dict[str, Topic]:
        """Those of the topics that exist.

        Args:
            awaited: id, if it is known, of topics that should be there: these are gone only if they
                are unknown for about ten seconds.
        """
        wanted = sorted(names)
        return self._looked_for(lambda: self._described(wanted), awaited or {})

    def matching(self, pattern: str, awaited: Mapping[str, str | None]) -> dict[str, Topic]:
        """The topics whose whole name matches, without Kafka's internal ones and side topics."""

        def fits(name: str) -> bool:
            return re.fullmatch(pattern, name) is not None and not _is_internal(name)

        def find(admin: AdminClient, seconds: float) -> list[str]:
            with translate_errors("listing the topics", self._who):
                return list(filter(fits, admin.list_topics(timeout=seconds).topics))

        return self._looked_for(
            lambda: self._described(self._patiently(find)),
            {name: id_ for name, id_ in awaited.items() if fits(name)},
        )

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
        return self._patiently(lambda a, s: self._list_offsets(a, asked, s)) if asked else {}

    def _list_offsets(
        self, admin: AdminClient, asked: Mapping[Partition, OffsetSpec], seconds: float
    ) -> dict[Partition, int]:
        with translate_errors("asking for offsets", self._who):
            answers = admin.list_offsets(
                {TopicPartition(topic, number): spec for (topic, number), spec in asked.items()},
                isolation_level=self._isolation,
                request_timeout=seconds,
            )
            found = {
                (p.topic, p.partition): _taken(each, seconds).offset for p, each in answers.items()
            }
        for (topic, partition), offset in found.items():
            if offset == OFFSET_INVALID:  # librdkafka's answer, without an error, for a dead leader
                raise UnavailableError(
                    f"Kafka: the leader of {topic}/{partition} does not tell its offsets.",
                    remedy="see that the partition has a leader; then start again.",
                )
        return found

    def _looked_for(
        self, look: Callable[[], dict[str, Topic]], awaited: Mapping[str, str | None]
    ) -> dict[str, Topic]:
        """What is found; where a topic is unknown that should be there, what a later look finds.

        Brokers hear of topics one after the other, and one that has just started may have heard of
        none. A client may keep to the broker that it has asked: each further look is by a new one.

        A topic that was found gone is not waited for again, because its place is kept and planned
        with. One without an id is: it may be made meanwhile.
        """

        def missing(found: Mapping[str, Topic]) -> set[tuple[str, str | None]]:
            return {pair for pair in awaited.items() if pair[0] not in found} - self._gone

        found = look()
        for pause in UNHEARD_PAUSES:
            if not missing(found):
                break
            time.sleep(pause)
            self._admin = self._new_client()
            found = look()
        self._gone -= {(name, topic.id) for name, topic in found.items()}
        self._gone |= {pair for pair in missing(found) if pair[1] is not None}
        return found

    def _described(self, names: list[str]) -> dict[str, Topic]:
        return self._patiently(lambda a, s: self._describe(a, names, s)) if names else {}

    def _describe(self, admin: AdminClient, names: list[str], seconds: float) -> dict[str, Topic]:
        with translate_errors("looking up the topics", self._who):
            answers = admin.describe_topics(TopicCollection(names), request_timeout=seconds)
        found = {}
        for name, answer in answers.items():
            with translate_errors(f"looking up the topic {name}", self._who):
                try:
                    said = _taken(answer, seconds)
                except KafkaException as error:
                    if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                        continue
                    raise
            numbers = tuple(sorted(partition.id for partition in said.partitions))
            found[name] = Topic(str(said.topic_id), numbers)
        return found

    def _patiently(self, ask: Callable[[AdminClient, float], T]) -> T:
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

    def _let_in(self, ask: Callable[[AdminClient, float], T], seconds: float) -> T:
        """Ask; where no answer comes because the brokers let us not in, that is the error.

        librdkafka tells of a refused password or certificate as an event, and goes on trying. And it
        goes on to wait for a controller that has died, for as long as it remembers it as that: the
        next request is by a new client.

        Another thread may give up the client meanwhile. It is kept until the answer is there: a
        client that is closed gives none.
        """
        admin = self._admin
        try:
            answer = ask(admin, seconds)
        except UnavailableError as error:
            admin.poll(0.1)
            told = next((e for e in reversed(self._events) if is_auth_failure(e)), None)
            if self._admin is admin:
                self._admin = self._new_client()
            if told is None:
                raise
            raise to_abs_error(told, "connecting", self._who) from error
        admin.poll(0)
        self._events.clear()  # who gets an answer is let in: what was refused before has passed
        return answer


def _taken(answer: Future[Any], seconds: float) -> Any:
    """The answer to a request that may take so long; librdkafka itself ends one that takes longer."""
    try:
        return answer.result(seconds + LATE_SECONDS)
    except TimeoutError as error:
        raise UnavailableError(
            f"Kafka: a request of {seconds:g} s neither came back nor failed.",
            remedy="look at the brokers and at kafka.bootstrap.servers; then start again.",
        ) from error


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
