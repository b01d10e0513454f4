"""Can the brokers keep the promise? (written below)"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from abs_core.model import Finding
from abs_sinks.kafka.options import KafkaOptions


def preflight(
    options: KafkaOptions, schema: pa.Schema | None, job: str | None, tasks: int | None
) -> Sequence[Finding]:
    return []
