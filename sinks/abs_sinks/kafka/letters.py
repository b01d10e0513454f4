"""Dead letters as records: the value is the letter as JSON, headers say it in Kafka Connect's words."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from abs_sinks.jsontext import json_text
from abs_sinks.kafka.headers import Header
from abs_sinks.kafka.records import HEADERS, Records

_PREFIX = "__connect.errors."
"""``org.apache.kafka.connect.runtime.errors.DeadLetterQueueReporter``."""


def letter_records(letters: pa.RecordBatch, topic: str, partition: int | None) -> Records:
    """Records of dead letters (rows of ``LETTERS``), without a key, for any partition.

    Args:
        partition: of the task, if known.
    """
    rows = pa.StructArray.from_arrays(letters.columns, fields=list(letters.schema))
    headers = [list(_headers(letter, partition)) for letter in letters.to_pylist()]
    return Records(
        values=json_text(rows, "").view(pa.binary()),
        keys=None,
        headers=pa.array(headers, HEADERS),
        topics=pa.repeat(topic, letters.num_rows),
        partitions=None,
        timestamps=None,
    )


def _headers(letter: dict[str, Any], partition: int | None) -> Iterable[Header]:
    position = json.loads(letter["position"] or "{}")
    context = {
        "topic": position.get("topic"),
        "partition": position.get("partition"),
        "offset": position.get("offset"),
        "connector.name": letter["job"],
        "task.id": partition,
        "stage": "TASK_PUT",
        "class.name": f"abs-kafka: {letter['sink']}",
        "exception.class.name": letter["code"],
        "exception.message": letter["message"],
    }
    for name, value in context.items():
        if value is not None:
            yield _PREFIX + name, str(value).encode()
