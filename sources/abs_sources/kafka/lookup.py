"""Queries the brokers for topics, their partitions and the offsets of their ends.

Waits for the brokers for the option ``patience``, and logs it: an engine plans again and again.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined] # it is there

from abs_clients.kafka.admin import Admin, fits
from abs_clients.kafka.cluster import cluster
from abs_core.patience import DEFAULT_PATIENCE, Patience
from abs_sources.kafka.offsets import Partition
from abs_sources.kafka.options import KafkaSourceOptions

T = TypeVar("T")

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]

REQUEST_SECONDS = 2.0
"""How long the first request may take; each next one may take twice as long."""

MAX_SECONDS = 60.0
"""How long a request may take at most."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; ``id`` differs from that of a recreated topic of the same name."""

    id: str
    partitions: tuple[int, ...]


class Lookup:
    """Queries a cluster with retries. Thread-safe.

    Every call raises UnavailableError without an answer within ``patience``, RefusedError if the
    brokers refuse for good, and OptionError for a wrong setting.
    """

    def __init__(self, admin: Admin, patience: Patience = DEFAULT_PATIENCE) -> None:
        self._admin = admin
        self._patience = patience
        self._gone: set[tuple[str, str | None]] = set()
        self._seen: dict[tuple[str, str], float] = {}
        """When a topic was asked for that had this id, by the monotonic clock."""

    def topics(
        self, names: Iterable[str], awaited: Mapping[str, str | None] | None = None
    ) -> dict[str, Topic]:
        """The existing ones of these topics.

        Args:
            awaited: ids (if known) of topics that should exist: they count as gone only after about
                ten seconds.
        """
        wanted = sorted(names)
        return self._looked_for(lambda: self._described(wanted), awaited or {})

    def is_still(self, topic: str, id_: str, since: float) -> bool:
        """Whether the topic has this id.

        An answer from ``since`` (monotonic clock) or later is used again. Raises UnavailableError
        after one request without an answer: the caller may repeat it.
        """
        if self._seen.get((topic, id_), -math.inf) >= since:
            return True
        asked = time.monotonic()
        said = self._admin.describe([topic]).get(topic)
        if said is None:  # a broker may not have heard of it yet
            current = self.topics([topic], {topic: id_}).get(topic)
            if current is None or current.id != id_:
                return False
        elif str(said.topic_id) != id_:
            return False
        self._seen[topic, id_] = asked
        return True

    def matching(self, pattern: str, awaited: Mapping[str, str | None]) -> dict[str, Topic]:
        """Topics whose whole name matches, without Kafka's internal ones and side topics."""

        def look() -> dict[str, Topic]:
            names = self._patiently(self._admin.names)
            return self._described([name for name in names if fits(pattern, name)])

        return self._looked_for(
            look, {name: id_ for name, id_ in awaited.items() if fits(pattern, name)}
        )

    def first(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The oldest existing offset of each partition."""
        return self._offsets(dict.fromkeys(partitions, _EARLIEST))

    def end(
        self, partitions: Iterable[Partition], read_to: Mapping[Partition, int] | None = None
    ) -> dict[Partition, int]:
        """The end of each partition now; under ``read_committed`` the last stable offset.

        Args:
            read_to: offsets up to which partitions have been read. A lower end counts only after about
                ten seconds: a broker that was stopped may not know yet that another leads.
        """
        asked = dict.fromkeys(partitions, _LATEST)
        read = {} if read_to is None else read_to
        return self._admin.until_heard(
            lambda: self._offsets(asked),
            lambda ends: any(end < read.get(place, 0) for place, end in ends.items()),
        )

    def at(self, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
        """The first offset at this time (milliseconds) or later; None if there is none."""
        offsets = self._offsets({p: OffsetSpec.for_timestamp(ms) for p, ms in times.items()})
        return {p: None if offset < 0 else offset for p, offset in offsets.items()}

    def _offsets(self, asked: Mapping[Partition, OffsetSpec]) -> dict[Partition, int]:
        return self._patiently(lambda seconds: self._admin.offsets(asked, seconds))

    def _looked_for(
        self, look: Callable[[], dict[str, Topic]], awaited: Mapping[str, str | None]
    ) -> dict[str, Topic]:
        """The topics found; looks again for awaited ones that are unknown.

        A topic that was found gone is not awaited again, because its place is kept and planned
        with. One without an id is: it may be created meanwhile.
        """

        def missing(there: Mapping[str, Topic]) -> set[tuple[str, str | None]]:
            return {pair for pair in awaited.items() if pair[0] not in there} - self._gone

        found = self._admin.until_heard(look, lambda there: bool(missing(there)))
        self._gone -= {(name, topic.id) for name, topic in found.items()}
        self._gone |= {pair for pair in missing(found) if pair[1] is not None}
        return found

    def _described(self, names: list[str]) -> dict[str, Topic]:
        said = self._patiently(lambda seconds: self._admin.describe(names, seconds))
        return {
            name: Topic(
                str(description.topic_id), tuple(sorted(part.id for part in description.partitions))
            )
            for name, description in said.items()
        }

    def _patiently(self, ask: Callable[[float], T]) -> T:
        longest = min(MAX_SECONDS, self._patience.seconds)
        doubling = itertools.accumulate(
            itertools.repeat(REQUEST_SECONDS), lambda s, _: min(2 * s, longest)
        )
        return self._patience.retry(lambda: ask(next(doubling)))


def lookup(options: KafkaSourceOptions) -> Lookup:
    """The process's only one with these settings, so that a missing topic is awaited once."""
    shared_cluster, patience = cluster(options.client), options.patience
    return shared_cluster.kept(
        ("source's lookup", patience), lambda: Lookup(shared_cluster.admin, patience)
    )
