"""Whether a table went back: by the place of the last epochs' commits in its log.

The mark alone does not tell: Delta keeps application transactions over RESTORE, Iceberg properties over
a rollback.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from abs_core.lookback import LookedBack, Past, compared, reading_mark
from abs_core.model import Committable, Shown
from abs_core.strictjson import fields, parse, text, whole
from abs_sinks.lake.table import Mark, Snapshot

_UNSURE = (
    "Its log no longer has the commit of its last epoch: it was cleaned, or snapshots expired."
)


@dataclass(frozen=True, slots=True)
class Logged:
    """An epoch's commit: its place in the log (``Snapshot.place_of``), and its mark."""

    place: str
    application: str
    version: int

    def to_text(self) -> str:
        values = {"place": self.place, "application": self.application, "version": self.version}
        return json.dumps(values)

    @classmethod
    def read(cls, mark: str) -> Self:
        """Raises CorruptionError: the text is none of ``to_text``."""
        with reading_mark("a table"):
            values = fields(parse(mark))
            version = whole(values["version"])
            return cls(text(values["place"]), text(values["application"]), version)


def shown(committables: Sequence[Committable], mark: Mark, place: str | None) -> list[Shown]:
    """The commit of an epoch, where the log tells its place."""
    if place is None:
        return []
    rows = sum(committable.rows for committable in committables)
    return [Shown(0, rows, Logged(place, mark.application, mark.version).to_text())]


def look_back(snapshot: Snapshot | None, past: Past, epochs: int) -> list[LookedBack]:
    """Compare the table's log with what is noted.

    Args:
        epochs: of one generation, that a mark's version has room for.
    """
    generation, epoch = past.decided

    def is_there(mark: str) -> bool | None:
        noted = Logged.read(mark)
        last = None if snapshot is None else snapshot.version_of(noted.application)
        if snapshot is None or (last is not None and last < noted.version):
            return False
        there = snapshot.has(noted.place)
        # Without the mark, which the log forgets after a time, that place may be another commit's.
        return None if there and last is None else there

    why = "Its log was cut, or was restored or rolled back to an older state."
    every = snapshot is not None and (snapshot.log_is_read or _others_committed(past))
    looks = compared(past, is_there, why, _UNSURE, every=every)
    applications = {Logged.read(note.mark).application for note in past.noted}
    applications |= {application_of(past.register, number) for number in past.sinks}
    seen = [snapshot.version_of(name) or 0 for name in sorted(applications)] if snapshot else []
    if max(seen, default=0) > generation * epochs + epoch:
        looks.append(LookedBack(past.sinks[0], ahead=divmod(max(seen), epochs)))
    return looks


def application_of(register: str, sink: int) -> str:
    """The application of a sink's marks, see ``committer.mark_of``."""
    # A sink's handles are 2^24 partitions apart from the next one's.
    return f"abs-{register}-{sink << 8}"


def _others_committed(past: Past) -> bool:
    """Whether commits of others lie between the noted ones, one of which may be a restore."""
    numbers = [int(Logged.read(note.mark).place) for note in past.noted]
    return any(later != number + 1 for number, later in pairwise(numbers))
