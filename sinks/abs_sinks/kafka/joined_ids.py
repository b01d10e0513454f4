"""Finds cells that share a transactional id, whose jobs would fence each other.

A cell's id joins topic and job with a dot (``register_session.register_id``), and both may hold dots:
job ``b.c`` in topic ``a`` has the id of job ``c`` in ``a.b``. The ids are durable, so preflight looks
for the other cell, by a request per dot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from abs_core.errors import ConfigError, CorruptionError, RefusedError
from abs_core.model import Finding, Severity
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register import KafkaRegister
from abs_sinks.kafka.register_session import register_id
from abs_sinks.kafka.register_topic import find_topic

_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
"""A topic's name (Kafka, ``Topic.validate``)."""

Cell = tuple[str, str]
"""Register topic and key."""


def namesakes(topic: str, key: str) -> list[Cell]:
    """All other possible cells with this cell's id."""
    whole = f"{topic}.{key}"
    dots = [at for at, letter in enumerate(whole) if letter == "."]
    pairs = [(whole[:at], whole[at + 1 :]) for at in dots]
    return [
        (name, rest) for name, rest in pairs if name != topic and rest and _TOPIC.fullmatch(name)
    ]


def joined(options: KafkaOptions, keys: Iterable[str]) -> Iterator[Finding]:
    """Find existing cells with the id of one of the job's cells; changes nothing.

    It is an error for a new cell, and a warning for an existing one, whose decisions must be finished.

    Args:
        keys: of the job's cells.

    Raises:
        TargetError: no broker answers.
    """
    mine = options.registertopic
    for key in keys:
        for topic, other in namesakes(mine, key):
            if not _is_there(options, topic, other):
                continue
            is_new = KafkaRegister(options).load_text(key) is None
            yield Finding(
                Severity.ERROR if is_new else Severity.WARNING,
                f"The cell {other} of the register topic {topic} has the same transactional id as this "
                f"job's cell {key} of {mine} ({register_id(mine, key)}): whenever one of the two jobs "
                "commits, it stops the other.",
                "give this job another name (job=...), or the other register topic "
                f"(registertopic={topic})."
                if is_new
                else "give one of the two jobs another name (`abs register rename`); or retire the "
                "other one, if it does not run any more.",
            )
            break


def _is_there(options: KafkaOptions, topic: str, key: str) -> bool:
    try:
        if find_topic(options.kafka, topic) is None:
            return False
        return KafkaRegister(replace(options, registertopic=topic)).load_text(key) is not None
    except (ConfigError, CorruptionError, RefusedError):
        return False  # it holds no registers, or none that this principal may see
