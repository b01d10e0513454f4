"""The records that a reader with ``winners=true`` gets from a topic of ``protocol=idempotent``.

The rule is ``abs_clients.kafka.attempts``, as for every reader; the client is the audit's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import pyarrow as pa

from abs_audit.report import Pending
from abs_clients.kafka.attempts import HEADER, Winners
from abs_core.model import HandleName


@dataclass(slots=True)
class WinnersFilter:
    """Drops the losers' records, and in each partition everything after an undecided one."""

    winners: Winners
    _waiting: dict[int, tuple[int, HandleName]] = field(default_factory=dict)

    def counted(self, partition: int, records: Sequence[Any]) -> list[Any]:
        """The records that count, of a partition's next records in offset order.

        Raises CorruptionError if a winners record that is needed was deleted.
        """
        if partition in self._waiting:
            return []
        filtered = self.winners.filter(pa.array(map(attempt_header, records), pa.binary()))
        if filtered.undecided is not None:
            self._waiting[partition] = records[filtered.stop].offset, filtered.undecided
        return list(compress(records[: filtered.stop], filtered.keep.to_pylist()))

    def pending(self) -> Iterable[Pending]:
        """The positions at which readers wait, by the records read so far."""
        for partition, (offset, attempt) in sorted(self._waiting.items()):
            yield Pending(
                f"partition {partition}: readers with winners=true wait at offset {offset}: attempt "
                f"{attempt} is not decided"
            )


def attempt_header(record: Any) -> bytes | None:
    """The value of the record's header that names its attempt."""
    return dict(record.headers).get(HEADER)
