"""Undecided records of ``protocol=idempotent`` in a Kafka topic, for ``abs in-doubt list``."""

from __future__ import annotations

import time
from collections.abc import Sequence

from abs_cli.places import kafka_options
from abs_core import protocol
from abs_core.model import HandleName, InDoubt, JobState
from abs_sinks.shown import scheme_of

LIST_SECONDS = 15.0


def undecided_attempts(url: str, topic: str) -> list[InDoubt]:
    """The undecided attempts in a topic, by reading it completely.

    Raises:
        ConfigError, OptionError: the URL names no Kafka cluster, or its settings are wrong.
        TargetError: the topic does not exist, or cannot be read.
    """
    from abs_sources.kafka.undecided import undecided

    settings = kafka_options(url, topic=topic).kafka
    now = time.time()
    return [
        InDoubt(
            each.handle,
            max(0.0, now - each.first_ms / 1000) if each.first_ms > 0 else None,
            f"{each.records} records in topic {topic}, the first one at {each.first}",
        )
        for each in undecided(dict(settings.pairs), topic)
    ]


def fate_of_attempt(state: JobState | None, handle: HandleName) -> str:
    """The future of an undecided attempt, by the register's present state."""
    if state is not None and protocol.sweepable(state, state.generation, handle):
        return "lost: readers continue when the job decides its next epoch"
    return protocol.fate(state, handle)


def topics_with_winners(url: str | None) -> Sequence[str]:
    """The visible topics of a cluster that ``protocol=idempotent`` has written to.

    Empty without a Kafka URL. Raises as ``undecided_attempts``.
    """
    if url is None or scheme_of(url) != "kafka":
        return []
    from abs_clients.kafka.attempts import side_topic
    from abs_clients.kafka.cluster import cluster

    settings, ending = kafka_options(url).kafka, side_topic("")
    names = cluster(settings).admin.names(LIST_SECONDS)
    return [name.removesuffix(ending) for name in names if name.endswith(ending)]


def give_up_attempts(url: str | None, state: JobState) -> None:
    """Give up the undecided records of a job, so that readers by winners can continue.

    Does nothing for a job without such topics. Raises as
    ``abs_sinks.kafka.give_up_attempts.give_up``.
    """
    topic = state.target.rpartition("/")[2]
    # What is open is decided: such a job has another protocol, which sends nothing undecided there.
    if url is None or state.open or topic not in topics_with_winners(url):
        return
    from abs_sinks.kafka.give_up_attempts import give_up

    give_up(kafka_options(url, topic=topic), state.job)
