"""Names of targets, and of transactional ids, which are reused and parse back exactly.

A broker keeps an id for days after its last use (transactional.id.expiration.ms), so ids are not made
per handle. An id belongs to one process, job and generation; its random part keeps processes apart
(I6). It is reused only after its last handle's epoch is finished or abandoned (``Task.knows_over``).
"""

from __future__ import annotations

from abs_clients.kafka.cluster_facts import cluster_id
from abs_core.model import NO_EPOCH, HandleName
from abs_sinks.kafka.options import KafkaOptions

ANY_TOPIC = "*"


def id_name(register: str, job: str, generation: int, number: int, incarnation: str) -> HandleName:
    """The name whose text is the transactional id.

    Args:
        number: of the id in its incarnation, from 0.
        incarnation: lower-case hex, random per process and generation.
    """
    return HandleName(register, job, generation, NO_EPOCH, number, incarnation)


def parse_id(text: str) -> HandleName | None:
    """Parse a transactional id; None if it is not one of this sink."""
    name = HandleName.parse(text)
    return name if name is not None and is_id(name) else None


def is_id(name: HandleName) -> bool:
    """Whether the name is of a transactional id, not of a handle."""
    return name.epoch == NO_EPOCH


def pattern_of(job: str | None) -> str:
    """A regular expression for the ids of a job, or of all; a match must still be parsed."""
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
