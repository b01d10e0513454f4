"""Of a topic that ``protocol=idempotent`` wrote: which records a reader with ``winners=true`` gets.

The rule is ``abs_clients.kafka.attempts``, as for every reader. The audit reads with a client of
its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import pyarrow as pa

from abs_audit.report import Pending
from abs_clients.kafka.attempts import HEADER, Winners, attempt_of, side_topic
from abs_core.errors import CorruptionError
from abs_core.model import HandleName


@dataclass(slots=True)
class Judge:
    """Leaves out the records of losers, and in each partition what comes after an undecided one.

    Args:
        winners: what the side topic says.
    """

    winners: Winners
    _waiting: dict[int, tuple[int, HandleName]] = field(default_factory=dict)

    def counted(self, partition: int, records: Sequence[Any]) -> list[Any]:
        """Those that count of the next records of a partition, which come in the order of offsets.

        Raises:
            CorruptionError: a winners record is deleted, so nobody can tell any more.
        """
        if partition in self._waiting:
            return []
        judged = self.winners.judge(pa.array(map(_attempt, records), pa.binary()))
        if judged.undecided is not None:
            self._waiting[partition] = records[judged.stop].offset, judged.undecided
        return list(compress(records[: judged.stop], judged.keep.to_pylist()))

    def pending(self) -> Iterable[Pending]:
        """Where readers wait, by what was judged so far."""
        for partition, (offset, attempt) in sorted(self._waiting.items()):
            yield Pending(
                f"partition {partition}: readers with winners=true wait at offset {offset}: attempt "
                f"{attempt} is not decided"
            )


def refuse_attempts(records: Sequence[Any], topic: str) -> None:
    """See that none of the records is an attempt's, where it was not said how those are to be read.

    Raises:
        CorruptionError: one is, and there is no side topic: with one, the audit asks what is meant.
    """
    for record in records:
        if record.headers and (value := _attempt(record)) is not None:
            raise CorruptionError(
                f"The topic {topic} was written by protocol=idempotent. The side topic "
                f"{side_topic(topic)}, which says whose attempt counts, does not exist, or the "
                "principal may not describe it.",
                handle=str(attempt_of(value)),
                remedy="restore the side topic, and audit with winners=true; winners=false audits the "
                "records of every attempt.",
            )


def _attempt(record: Any) -> bytes | None:
    return dict(record.headers).get(HEADER)
