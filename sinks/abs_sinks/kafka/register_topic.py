"""The topic that holds registers: how it is made, and what is asked of one that is there.

``PARTITIONS`` partitions, and a job's cell always in the same one: readers of committed data wait for
the oldest open transaction of a partition, so jobs in one partition can make each other wait, for the
milliseconds of a commit (``register_session.end_writers`` says what keeps it from being longer); with
more than one, fewer share. The count is a constant and not the topic's, because a cell must be found
again after somebody has added partitions. Compacted, with small segments: only closed segments are
compacted, and what is not is what a search for a job that never ran must read. The number of replicas
is the broker's default, that is, the operator's choice for what must not be lost. A leader that lags is
never elected, and where there are several replicas, two must have a record: what was decided must not
be taken back. Preflight looks at all three (``preflight_state``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from zlib import crc32

from abs_clients.kafka import timeouts
from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.topics import topic_facts, topics_in_time
from abs_core.errors import PreflightError, RefusedError, SchemaError, UnavailableError

T = TypeVar("T")

log = logging.getLogger(__name__)

PARTITIONS = 4
SEGMENT_BYTES = 4 << 20
_LEAST = "min.insync.replicas"

_CONFIG = {
    "cleanup.policy": "compact",
    "unclean.leader.election.enable": "false",
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.1",
    "message.timestamp.type": "CreateTime",
}


@dataclass(frozen=True, slots=True)
class RegisterTopic:
    """A topic that was found fit to hold registers.

    Args:
        max_message_bytes: what it takes as one batch of records.
        id: see ``TopicFacts``.
    """

    name: str
    max_message_bytes: int
    id: str | None = None


def partition_of(job: str) -> int:
    """The partition of a job's cell. All tokens of a batch job (``job@token``) share one."""
    return crc32(job.partition("+")[0].partition("@")[0].encode()) % PARTITIONS


def find_topic(settings: Settings, name: str) -> RegisterTopic | None:
    """The topic, checked; None where there is none.

    Raises:
        PreflightError: it is there and cannot hold registers.
    """
    found = topic_facts(settings, [name], again=True).get(name)
    if found is None:
        return None
    try:
        config = cluster(settings).admin.configs(name)
    except SchemaError as error:  # the broker that was asked has not heard of it yet
        log.debug("%s", error)
        return None
    wrong = []
    if config["cleanup.policy"].replace(" ", "") != "compact":
        wrong.append(
            f"its cleanup.policy is {config['cleanup.policy']}: registers would be deleted"
        )
    if found.partitions < PARTITIONS:
        wrong.append(f"it has {found.partitions} partitions of {PARTITIONS}")
    if wrong:
        raise PreflightError(
            f"The topic {name} cannot hold registers: {'; '.join(wrong)}.",
            remedy="name another one by the option registertopic: it is made where it is missing; "
            f"or set cleanup.policy=compact and make it with {PARTITIONS} partitions.",
        )
    return RegisterTopic(name, int(config["max.message.bytes"]), found.id)


def make_topic(settings: Settings, name: str) -> RegisterTopic:
    """The topic, made where it is missing.

    Raises:
        PreflightError: it is there and cannot hold registers.
        RefusedError: it may not be made.
    """
    found = find_topic(settings, name)
    return found or made(settings, name, PARTITIONS, _CONFIG, lambda: find_topic(settings, name))


def made(
    settings: Settings,
    name: str,
    partitions: int,
    config: Mapping[str, str],
    look: Callable[[], T | None],
) -> T:
    """Make a topic that must not be lost; what ``look`` sees of it once it is there.

    Raises:
        RefusedError: it may not be made.
        UnavailableError: it is not to be seen in time.
    """
    cluster(settings).admin.create(name, partitions, config)
    deadline = time.monotonic() + timeouts.APPEARS_SECONDS
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise UnavailableError(f"The topic {name} was made, and is not to be seen yet.")
        time.sleep(0.02)
    need_two(settings, name)
    return found


def need_two(settings: Settings, name: str) -> None:
    """Where a topic that was just made has several replicas, let two of them need to have a record.

    The broker's default may be one. Where this may not be set, preflight refuses the topic at the next
    start, and says what to do.

    Raises:
        TargetError: the brokers do not answer.
    """
    facts = topics_in_time(settings, [name], again=True).get(name)
    if facts is None or facts.replicas < 2 or dict(facts.configs).get(_LEAST) != "1":
        return
    try:
        cluster(settings).admin.set_config(name, _LEAST, "2")
    except RefusedError as error:
        log.warning("%s", error)
