"""Undecided records of ``protocol=idempotent`` in a Kafka topic: ``abs in-doubt --attempts``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from abs_core import protocol
from abs_core.errors import ConfigError
from abs_core.model import HandleName, InDoubt, JobState
from abs_sinks.kafka.door import FORMAT

if TYPE_CHECKING:
    from abs_clients.kafka.attempts import Decided
    from abs_sinks.kafka.options import KafkaOptions


def undecided_attempts(url: str, topic: str) -> list[InDoubt]:
    """The undecided attempts in a topic, by reading it completely.

    Raises:
        ConfigError, OptionError: the URL names no Kafka cluster, or its settings are wrong.
        TargetError: the topic does not exist, or cannot be read.
    """
    from abs_sources.kafka.undecided import undecided

    settings = _options(url, topic).kafka
    now = time.time()
    return [
        InDoubt(
            attempt.handle,
            max(0.0, now - attempt.first_ms / 1000) if attempt.first_ms > 0 else None,
            f"{attempt.records} records in topic {topic}, the first one at {attempt.first}",
        )
        for attempt in undecided(dict(settings.pairs), topic)
    ]


def fate_of_attempt(state: JobState | None, handle: HandleName) -> str:
    """The future of an undecided attempt, by the register's present state."""
    if state is not None and protocol.sweepable(state, state.generation, handle):
        return "lost: readers continue when the job decides its next epoch"
    return protocol.fate(state, handle)


def give_up_named(
    url: str, topic: str, job: str, orphans: Sequence[HandleName]
) -> Sequence[Decided]:
    """As ``abs_sinks.kafka.give_up_attempts.give_up``; raises besides as ``undecided_attempts``."""
    from abs_sinks.kafka.give_up_attempts import give_up

    return give_up(_options(url, topic), job, orphans)


def _options(url: str, topic: str) -> KafkaOptions:
    if not FORMAT.claims(url):
        raise ConfigError(
            "The URL does not name a Kafka cluster.", remedy="write kafka://host:port/topic."
        )
    return FORMAT.at(url, topic)
