"""The register's topic: its creation, and the checks of an existing one.

- ``PARTITIONS`` is a constant, so that a cell is found after somebody has added partitions. Jobs in
  one partition wait for each other's open transactions, for the milliseconds of a commit
  (``register_session.end_writers`` bounds it).
- It is compacted, with small segments: only closed segments are compacted, and the search for an
  unknown job reads all the rest.
- The number of replicas is the broker's default. No lagging leader is elected, and two of several
  replicas must have a record, so that no decision is lost. Preflight checks all three.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TypeVar
from zlib import crc32

from abs_clients.kafka import timeouts
from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.topics import TopicFacts, topic_facts, topics_in_time
from abs_core.errors import PreflightError, RefusedError, UnavailableError

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


def partition_of(job: str) -> int:
    """The partition of a job's cell. All tokens of a batch job (``job@token``) share one."""
    return crc32(job.partition("+")[0].partition("@")[0].encode()) % PARTITIONS


def find_topic(settings: Settings, name: str) -> TopicFacts | None:
    """The topic, if it exists.

    Raises:
        PreflightError: it cannot hold registers.
        RefusedError: its settings may not be read.
    """
    found = topic_facts(settings, [name], again=True).get(name)
    if found is None:
        return None
    policy = found.cleanup_policy
    if policy is None:
        policy = cluster(settings).admin.configs(name)["cleanup.policy"]  # which raises the error
    wrong = []
    if policy.replace(" ", "") != "compact":
        wrong.append(f"its cleanup.policy is {policy}: registers would be deleted")
    if found.partitions < PARTITIONS:
        wrong.append(f"it has {found.partitions} partitions of {PARTITIONS}")
    if wrong:
        raise PreflightError(
            f"The topic {name} cannot hold registers: {'; '.join(wrong)}.",
            remedy="name another one with the option registertopic (a missing one is created); "
            f"or set cleanup.policy=compact and make it with {PARTITIONS} partitions.",
        )
    return found


def make_topic(settings: Settings, name: str) -> TopicFacts:
    """The topic, created if missing; raises as ``find_topic`` and ``made``."""
    found = find_topic(settings, name)
    return found or made(settings, name, PARTITIONS, _CONFIG, lambda: find_topic(settings, name))


def made(
    settings: Settings,
    name: str,
    partitions: int,
    config: Mapping[str, str],
    look: Callable[[], T | None],
) -> T:
    """Create a topic that must not be lost; returns what ``look`` finds.

    Raises:
        RefusedError: it may not be created.
        UnavailableError: it does not appear in time.
    """
    cluster(settings).admin.create(name, partitions, config)
    deadline = time.monotonic() + timeouts.APPEARS_SECONDS
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise UnavailableError(f"The topic {name} was created, but is not visible yet.")
        time.sleep(0.02)
    need_two(settings, name)
    return found


def need_two(settings: Settings, name: str) -> None:
    """Set min.insync.replicas=2 on a new topic with several replicas; the default may be 1.

    If that is not allowed, preflight refuses the topic at the next start.

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
