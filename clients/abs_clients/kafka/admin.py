"""Topics, their settings and offsets, by librdkafka's admin client.

Sinks and sources share it, so behaviour of restarting brokers is handled once:

- A refused password or certificate is an event to librdkafka, which keeps trying. It becomes
  an error.
- librdkafka waits for a dead controller or leader as long as it remembers it as such. After a
  request without an answer the next one uses a new client.
- Brokers learn of topics one after the other, and a restarted one may know none: a topic counts
  as missing after ``timeouts.UNHEARD_PAUSES`` (``until_heard``).
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined] # they are there
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from abs_clients.kafka import timeouts
from abs_clients.kafka.attempts import side_topic
from abs_clients.kafka.auth_check import check_access, new_client
from abs_clients.kafka.codes import UNHEARD
from abs_clients.kafka.errors import (
    SYSTEM,
    is_auth_failure,
    to_abs_error,
    translate_errors,
)
from abs_clients.kafka.settings import Settings, without_secrets
from abs_core.errors import RefusedError, UnavailableError

T = TypeVar("T")

Partition = tuple[str, int]

_LOST = (KafkaError._TRANSPORT, KafkaError._RESOLVE)

_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class End:
    """Where a partition ends.

    Args:
        leader: the epoch of its leader, which rises with each election; None: it does not tell.
    """

    offset: int
    leader: int | None


class Admin:
    """Queries a cluster. Thread-safe; every call is a request of some milliseconds.

    Every call raises UnavailableError without an answer in time, RefusedError if the brokers refuse
    for good, and OptionError for a wrong setting.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._events: deque[KafkaError] = deque(maxlen=16)
        self._lock = threading.Lock()
        self._client: AdminClient | None = None

    def ask(
        self,
        doing: str,
        call: Callable[[AdminClient, float], T],
        seconds: float = timeouts.REQUEST_SECONDS,
    ) -> T:
        """The result of a call of librdkafka's client.

        Another thread may replace the client meanwhile; it is kept open until the answer arrives.

        Args:
            doing: the action, as the end of a sentence.
            call: gets the client, and its time limit.
        """
        client = self.opened()
        try:
            with translate_errors(doing, self._settings):
                answer = call(client, seconds)
        except UnavailableError as error:
            client.poll(0.1)
            refusal = next((e for e in reversed(self._events) if is_auth_failure(e)), None)
            self.renew(client)
            if refusal is None:
                # It names the address that is not reached, which the brokers may have given.
                if lost := next((e for e in reversed(self._events) if e.code() in _LOST), None):
                    why = without_secrets(" ".join(lost.str().split()), self._settings)
                    error.what += f" The last connection that failed: {why}."
                raise
            raise to_abs_error(refusal, "connecting", self._settings) from error
        client.poll(0)
        self._events.clear()  # who gets an answer is let in: what was refused before has passed
        return answer

    def opened(self) -> AdminClient:
        """The client; fails at once if the brokers refuse these settings."""
        with self._lock:
            if self._client is None:
                if self._settings.is_guarded:
                    check_access(self._settings)
                self._client = new_client(self._settings, self._events.append)
            return self._client

    def renew(self, client: AdminClient | None = None) -> None:
        """Use a new client for the next request, if it would use this one."""
        with self._lock:
            if self._client is not None and client in (None, self._client):
                self._client = new_client(self._settings, self._events.append)

    def close(self) -> None:
        """Close the client; the next request makes a new one."""
        with self._lock:
            self._client = None
        self._events.clear()

    def until_heard(self, look: Callable[[], T], misses: Callable[[T], bool]) -> T:
        """The result of a look, repeated while something is missing that should exist.

        A client may stay with one broker, so each further look uses a new client.
        """
        result = look()
        for pause in timeouts.UNHEARD_PAUSES:
            if not misses(result):
                break
            time.sleep(pause)
            self.renew()
            result = look()
        return result

    def names(self, seconds: float = timeouts.REQUEST_SECONDS) -> list[str]:
        """The topics that the principal may see."""
        doing = "listing the topics"
        return sorted(self.ask(doing, lambda a, s: a.list_topics(timeout=s).topics, seconds))

    def describe(
        self,
        names: Iterable[str],
        seconds: float = timeouts.REQUEST_SECONDS,
        *,
        operations: bool = False,
    ) -> dict[str, Any]:
        """``TopicDescription`` of the topics that this broker knows.

        With ``operations``, also what the principal may do. Raises RefusedError if one may not be
        described.
        """
        wanted = sorted(set(names))
        if not wanted:
            return {}

        def call(client: AdminClient, seconds: float) -> dict[str, Any]:
            more = {"include_authorized_operations": True} if operations else {}
            answers = client.describe_topics(
                TopicCollection(wanted), request_timeout=seconds, **more
            )
            descriptions = {}
            for name, answer in answers.items():
                try:
                    said = _taken(answer, seconds, UNHEARD | {KafkaError.TOPIC_EXCEPTION})
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                        raise
                    raise RefusedError(
                        f"Topic {name} may not be described by the principal "
                        f"({self._settings.principal}).",
                        remedy=f"allow it DESCRIBE on topic {name}, and READ to read or WRITE to "
                        "write to it.",
                    ) from error
                if said is not None:
                    descriptions[name] = said
            return descriptions

        return self.ask(f"looking at topics {', '.join(wanted)}", call, seconds)

    def configs(self, name: str) -> dict[str, str]:
        """The settings of a topic that have a value, defaults included.

        Raises:
            SchemaError: this broker does not know the topic.
            RefusedError: they may not be read.
        """
        return self._configs(f"topic {name}", ConfigResource(ResourceType.TOPIC, name))

    def broker_configs(self, node: int) -> dict[str, str]:
        """The settings of a broker that have a value; raises RefusedError."""
        return self._configs(f"broker {node}", ConfigResource(ResourceType.BROKER, str(node)))

    def _configs(self, whose: str, resource: ConfigResource) -> dict[str, str]:
        def call(client: AdminClient, seconds: float) -> dict[str, Any]:
            asked = client.describe_configs([resource], request_timeout=seconds)
            config: dict[str, Any] = _taken(asked[resource], seconds)
            return config

        entries = self.ask(f"reading the settings of {whose} (DESCRIBE_CONFIGS)", call)
        return {e.name: str(e.value) for e in entries.values() if e.value is not None}

    def set_config(self, name: str, key: str, value: str) -> None:
        """Set one of a topic's settings; raises RefusedError."""
        resource = ConfigResource(
            ResourceType.TOPIC,
            name,
            incremental_configs=[
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            ],
        )
        self.ask(
            f"altering the settings of topic {name} (ALTER_CONFIGS)",
            lambda a, s: _taken(a.incremental_alter_configs([resource])[resource], s),
        )

    def create(
        self, name: str, partitions: int, configs: Mapping[str, str], *, dry: bool = False
    ) -> None:
        """Create a topic with the brokers' default of replicas, if absent; raises RefusedError.

        With ``dry`` it only asks whether the topic may be created.
        """
        new = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=dict(configs))

        def call(client: AdminClient, seconds: float) -> None:
            asked = client.create_topics([new], operation_timeout=seconds, validate_only=dry)
            _taken(asked[name], seconds, {KafkaError.TOPIC_ALREADY_EXISTS})

        self.ask(f"making the topic {name} (CREATE)", call)

    def offsets(
        self, asked: Mapping[Partition, OffsetSpec], seconds: float = timeouts.REQUEST_SECONDS
    ) -> dict[Partition, int]:
        """Offsets of partitions; the end is that of the settings' isolation level.

        Under ``read_committed`` this is the last stable offset.
        """
        answers = self._listed(asked, self._isolation, seconds)
        return {place: answer.offset for place, answer in answers.items()}

    def ends(self, places: Iterable[Partition]) -> dict[Partition, End]:
        """The ends of all acknowledged records, whatever the settings' isolation level."""
        asked = dict.fromkeys(places, _LATEST)
        answers = self._listed(asked, IsolationLevel.READ_UNCOMMITTED, timeouts.REQUEST_SECONDS)
        return {place: End(answer.offset, answer.leader_epoch) for place, answer in answers.items()}

    def _listed(
        self, asked: Mapping[Partition, OffsetSpec], isolation: IsolationLevel, seconds: float
    ) -> dict[Partition, Any]:
        if not asked:
            return {}
        specs = {TopicPartition(topic, number): spec for (topic, number), spec in asked.items()}

        def call(client: AdminClient, seconds: float) -> dict[Partition, Any]:
            answers = client.list_offsets(specs, isolation_level=isolation, request_timeout=seconds)
            return {
                (p.topic, p.partition): _answered(p, answer, seconds)
                for p, answer in answers.items()
            }

        return self.ask("asking for offsets", call, seconds)

    @property
    def _isolation(self) -> IsolationLevel:
        if self._settings.get("isolation.level") == "read_uncommitted":
            return IsolationLevel.READ_UNCOMMITTED
        return IsolationLevel.READ_COMMITTED


def topic_uuid(description: Any) -> str | None:
    """A topic's id as the protocol's UUID; None if the brokers know no ids (all zeros)."""
    uuid, mask = description.topic_id, (1 << 64) - 1
    if uuid is None:
        return None
    most, least = uuid.get_most_significant_bits(), uuid.get_least_significant_bits()
    whole = (most & mask) << 64 | least & mask
    return str(UUID(int=whole)) if whole else None


def fits(pattern: str, topic: str) -> bool:
    """Whether a topic's whole name matches, and it is neither Kafka's own nor a side topic."""
    internal = topic.startswith("__") or topic.endswith(side_topic(""))
    return not internal and re.fullmatch(pattern, topic) is not None


def _answered(partition: TopicPartition, answer: Future[Any], seconds: float) -> Any:
    """What the leader answers; repeated if it is away, or does not know the partition yet."""
    name = f"{partition.topic}/{partition.partition}"
    try:
        result = _taken(answer, seconds)
    except KafkaException as error:
        if error.args[0].code() not in UNHEARD:
            raise
        raise UnavailableError(
            f"Kafka: the leader of {name} does not know it: {error.args[0].str()}.",
            remedy="check that the topic exists, then start again.",
        ).of(SYSTEM) from error
    if result.offset == OFFSET_INVALID:  # librdkafka's answer, without an error, for a dead leader
        raise UnavailableError(
            f"Kafka: the leader of {name} did not return its offsets.",
            remedy="check that the partition has a leader, then start again.",
        ).of(SYSTEM)
    return result


def _taken(answer: Future[Any], seconds: float, passing: Set[int] = frozenset()) -> Any:
    """The answer to a request, None for an error of a ``passing`` code.

    librdkafka ends a request that takes longer.
    """
    try:
        error = answer.exception(seconds + timeouts.LATE_SECONDS)
    except TimeoutError as late:
        raise UnavailableError(
            f"Kafka did not answer an admin request within {seconds:g} s.",
            remedy="check the brokers and kafka.bootstrap.servers, then start again.",
        ).of(SYSTEM) from late
    if error is None:
        return answer.result()
    if not isinstance(error, KafkaException):
        raise error
    if error.args[0].code() not in passing:
        # Another one: the answer keeps its own, whose traceback would keep the answer, and the client.
        raise KafkaException(error.args[0])
    return None
