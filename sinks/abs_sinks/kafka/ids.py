"""Names: of a target, and of transactional ids, which are bounded in number and parse back exactly.

A broker keeps a transactional id for days after its last use (transactional.id.expiration.ms), so an
id per handle would fill it. An id belongs to one incarnation of one process under one generation of
one job: no two processes ever share one (I6), because its last part is random per incarnation. It is
used again only after the epoch of its last handle is finished or abandoned (``Task.knows_over``).
"""

from __future__ import annotations

from abs_clients.kafka.cluster_facts import cluster_id
from abs_core.model import NO_EPOCH, HandleName
from abs_sinks.kafka.options import KafkaOptions

ANY_TOPIC = "*"


def id_name(register: str, job: str, generation: int, number: int, incarnation: str) -> HandleName:
    """The name whose text is the transactional id.

    Args:
        number: tells the ids of one incarnation apart, from 0 on.
        incarnation: random, in lower-case hex, drawn once per process and generation.
    """
    return HandleName(register, job, generation, NO_EPOCH, number, incarnation)


def parse_id(text: str) -> HandleName | None:
    """The name that prints as exactly this transactional id; None where it is none of ours."""
    name = HandleName.parse(text)
    return name if name is not None and is_id(name) else None


def is_id(name: HandleName) -> bool:
    """Whether the name is a transactional id's, and no handle's."""
    return name.epoch == NO_EPOCH


def pattern_of(job: str | None) -> str:
    """A regular expression for the ids of a job, or of all: narrows what a broker lists.

    What matches must still be parsed: that alone says whose it is.
    """
    if job is None:
        return "abs1:.*"
    escaped = "".join(c if c.isalnum() or c in "_~%@-" else f"\\{c}" for c in job)
    return f"abs1:[0-9a-f]+:{escaped}:.*:{NO_EPOCH}:.*"


def identity(options: KafkaOptions) -> str:
    """``kafka:<cluster id>/<topic>``, with ``*`` where a column names the topic.

    Raises:
        TargetError: no broker answers, or it refuses.
    """
    return f"kafka:{cluster_id(options.kafka)}/{options.topic or ANY_TOPIC}"
