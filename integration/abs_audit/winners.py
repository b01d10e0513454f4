"""Of a topic that ``protocol=idempotent`` wrote: which records a reader with ``winners=true`` gets.

The rule is ``abs_core.attempts``, as for every reader; what is read, is read by the audit's own client.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import pyarrow as pa

from abs_audit.report import Pending
from abs_core.attempts import HEADER, Winners
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
                f"partition {partition}: readers with winners=true wait at offset {offset}, as attempt "
                f"{attempt} is not decided"
            )


def _attempt(record: Any) -> bytes | None:
    return dict(record.headers).get(HEADER)
