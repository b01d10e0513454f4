"""That a side topic was made, and which one: kept in the register's topic, beside the registers.

Without a side topic nobody can tell winners from losers, and one that was made anew says that nothing
was ever decided: readers that begin afresh would drop what is committed. So it is made only for a
topic that has none on record, by a job that has decided nothing yet; later it must be the same one.
The record is a cell of its own, for it outlives the jobs: what they wrote stays in the topic.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from abs_clients.kafka.attempts import side_topic
from abs_clients.kafka.topics import TopicFacts, topic_facts, topics_in_time
from abs_core.contracts import Conflict, Version
from abs_core.errors import ContentionError, CorruptionError
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register import KafkaRegister

TRIES = 5

Make = Callable[[KafkaOptions, str], None]
"""Makes the side topic of a topic, and returns when it is to be seen."""


@dataclass(frozen=True, slots=True)
class Birth:
    """A side topic as it was when its first job began.

    Args:
        data: id of the topic whose winners it names; None: the brokers told none.
        side: its own id.
    """

    data: str | None
    side: str | None

    def to_text(self) -> str:
        return json.dumps({"data": self.data, "side": self.side})

    @classmethod
    def from_text(cls, topic: str, text: str) -> Birth:
        """Raises:
        CorruptionError: it cannot be read.
        """
        try:
            fields = json.loads(text)
            data, side = fields["data"], fields["side"]
            if not all(isinstance(each, str | None) for each in (data, side)):
                raise TypeError("an id that is no text")
            return cls(data, side)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptionError(
                f"What the register's topic says of {side_topic(topic)} cannot be read: {error}.",
                remedy="do not delete it. Restore the register's topic from a backup.",
            ) from error


def settle(options: KafkaOptions, topic: str, job: str, make: Make) -> None:
    """See that the side topic of ``topic`` is the one that it always was; make the first one.

    Args:
        job: the register key of who is going to write.
        make: makes it.

    Raises:
        CorruptionError: it is gone, or was made anew.
        TargetError: the brokers do not answer, or refuse.
    """
    register = KafkaRegister(options)
    for _ in range(TRIES):
        version, birth = _known(register, topic)
        found = topic_facts(options.kafka, [topic, side_topic(topic)], again=True)
        if (error := _loss(options, topic, job, birth, found)) is not None:
            raise error
        if side_topic(topic) not in found:
            make(options, topic)
        ids = _ids(topic, _seen(options, topic))
        if birth == ids or not isinstance(
            register.swap_text(_cell_of(topic), version, ids.to_text()), Conflict
        ):
            return
    raise ContentionError(
        f"What the register's topic says of {side_topic(topic)} is being written by others.",
        job=job,
        remedy="start the query again.",
    )


def side_loss(options: KafkaOptions, topic: str, job: str | None) -> CorruptionError | None:
    """What ``settle`` would raise; nothing is made or changed.

    Raises:
        TargetError: the brokers do not answer, or refuse.
    """
    _, birth = _known(KafkaRegister(options), topic)
    found = topic_facts(options.kafka, [topic, side_topic(topic)], again=True)
    return _loss(options, topic, job, birth, found)


def _loss(
    options: KafkaOptions,
    topic: str,
    job: str | None,
    birth: Birth | None,
    found: dict[str, TopicFacts],
) -> CorruptionError | None:
    """None where the side topic is there, or where there never was one."""
    name = side_topic(topic)
    if birth is None:
        stored = None if name in found or job is None else KafkaRegister(options).load(job)
        if stored is None or stored.state.frontier is None or name in _seen(options, topic):
            return None
        return _error(
            topic,
            job,
            f"is gone, and this job has committed epochs up to {stored.state.frontier}",
            f"If those were of another protocol, make {name} by hand: one partition, "
            "cleanup.policy=delete, retention.ms=-1.",
        )
    if name not in found:
        found = _seen(options, topic)  # one broker that does not know it is no proof
    now = _ids(topic, found)
    if topic not in found or _differ(birth.data, now.data):
        return None  # another topic of that name holds no attempt that the old side topic spoke of
    if name not in found:
        return _error(topic, job, "is gone, and jobs have written with protocol=idempotent")
    if _differ(birth.side, now.side):
        return _error(topic, job, "was deleted and made anew")
    return None


def _differ(one: str | None, other: str | None) -> bool:
    return None not in (one, other) and one != other


def _error(topic: str, job: str | None, why: str, more: str = "") -> CorruptionError:
    return CorruptionError(
        f"The side topic {side_topic(topic)} {why}: which records of {topic} count is said nowhere "
        "else.",
        job=job,
        remedy=f"write to a new topic, and copy to it what is good of {topic} (winners=false reads the "
        f"records of every attempt). {more}".strip(),
    )


def _ids(topic: str, found: dict[str, TopicFacts]) -> Birth:
    data, side = found.get(topic), found.get(side_topic(topic))
    return Birth(None if data is None else data.id, None if side is None else side.id)


def _known(register: KafkaRegister, topic: str) -> tuple[Version | None, Birth | None]:
    cell = register.load_text(_cell_of(topic))
    if cell is None:
        return None, None
    return cell.version, Birth.from_text(topic, cell.text)


def _seen(options: KafkaOptions, topic: str) -> dict[str, TopicFacts]:
    """The topic and its side topic; neither counts as missing because one broker does not know it."""
    return topics_in_time(options.kafka, [topic, side_topic(topic)], again=True)


def _cell_of(topic: str) -> str:
    return f"{topic}+winners"  # no job's key has a plus sign
