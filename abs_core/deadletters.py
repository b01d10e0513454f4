"""Dead letters: rows that a target refused by their data, kept elsewhere under the same decision.

For each sink and epoch: rows that passed the sink's filter = rows written + rows dead. A committable's
``rows`` are those that passed; its ``extra`` holds the counts, the register keeps them with the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from abs_core import strictjson
from abs_core.errors import ContentionError, DeadLettersError, MiscountError
from abs_core.model import Committable, Dead, HandleName, JobState

COUNTS = "deadletters"
"""Key in a committable's ``extra``; absent without the option."""

MIN_DEAD = 100
"""From how many dead letters, over the epochs that the register remembers, the limit counts."""


MAX_REFUSALS = 5
"""How often rows may be found dead in one epoch: others may change the target in between."""


@dataclass(frozen=True, slots=True)
class Count:
    """What one committable holds of one sink.

    Args:
        most: the largest allowed share of dead rows (option ``deadlettermax``).
    """

    sink: int
    rows: int
    dead: int
    most: float


class RowsRefused(Exception):  # noqa: N818 - no error: the caller decides again
    """``co_commit`` found rows that the target refuses, and changed nothing but their pre-commits.

    Args:
        committables: all that were given, with the new counts of dead letters in ``extra``.
        why: what the target said, for people.
    """

    def __init__(self, committables: Sequence[Committable], why: str = "") -> None:
        super().__init__()
        self.committables = tuple(committables)
        self.why = why


def noted(counts: Iterable[Count]) -> tuple[tuple[str, str], ...]:
    """The pair for a committable's ``extra``; none without counts."""
    value = [[count.sink, count.rows, count.dead, count.most] for count in counts]
    return ((COUNTS, json.dumps(value, separators=(",", ":"))),) if value else ()


def with_counts(committable: Committable, more: Iterable[Count]) -> Committable:
    """The committable with these counts besides its own."""
    added = noted([*counts_of([committable]), *more])
    return replace(
        committable, extra=tuple(sorted((dict(committable.extra) | dict(added)).items()))
    )


def with_dead(committable: Committable, dead: int) -> Committable:
    """The committable with so many of its rows dead; it has the counts of one sink."""
    (count,) = counts_of([committable])
    extra = dict(committable.extra) | dict(noted([replace(count, dead=dead)]))
    return replace(committable, extra=tuple(sorted(extra.items())))


def check_held(committable: Committable, rows: int, dead: int) -> None:
    """Check what the target holds of a pre-commit: rows that passed = rows written + rows dead.

    Args:
        rows, dead: how many of each the target was seen to hold, before the decision.

    Raises:
        MiscountError: they are not what the committable says.
    """
    own_dead = sum(count.dead for count in counts_of([committable]))
    if (rows, dead) != (committable.rows - own_dead, own_dead):
        raise miscount(committable.handle, (committable.rows - own_dead, own_dead), (rows, dead))


def check_kept(parts: Sequence[Committable], made: Sequence[Committable]) -> None:
    """Check that what was composed counts the rows and dead letters of what it was composed of.

    Rows may have become dead letters on the way, of the same sink.

    Raises:
        MiscountError: a sink's rows are others, or it has lost dead letters.
    """
    after = {count.sink: count for count in counts_of(made)}
    for count in counts_of(parts):
        composed = after.get(count.sink, replace(count, rows=0, dead=0))
        if composed.rows != count.rows or composed.dead < count.dead:
            handle = parts[0].handle
            expected, kept = (
                (count.rows - count.dead, count.dead),
                (composed.rows - composed.dead, composed.dead),
            )
            raise miscount(handle, expected, kept)


def miscount(handle: HandleName, counted: tuple[int, int], held: tuple[int, int]) -> MiscountError:
    """The error for a pre-commit that holds other rows, or other dead letters, than were counted.

    Args:
        counted, held: rows to write and dead letters.
    """
    return MiscountError(
        f"Of epoch {handle.epoch} {counted[0]} rows to write and {counted[1]} dead letters were "
        f"counted, and the target holds {held[0]} and {held[1]}. Nothing of the epoch is decided.",
        handle=handle,
        remedy="restart the query: the epoch is written again. If it happens again, a trigger or "
        "rule of the place of the dead letters drops them, or something else writes there.",
    )


def counts_of(committables: Iterable[Committable]) -> list[Count]:
    """The counts by sink, over all committables."""
    total: dict[int, Count] = {}
    for committable in committables:
        for sink, rows, dead, most in strictjson.parse(dict(committable.extra).get(COUNTS, "[]")):
            new = Count(sink, rows, dead, most)
            old = total.get(new.sink, Count(new.sink, 0, 0, new.most))
            total[new.sink] = Count(new.sink, old.rows + new.rows, old.dead + new.dead, new.most)
    return [total[sink] for sink in sorted(total)]


def counted(
    state: JobState, epoch: int, committables: Sequence[Committable], kept: int
) -> tuple[Dead, ...] | DeadLettersError:
    """What the register records of an epoch; the error if a sink's limit is passed with it.

    Args:
        kept: over how many epochs, with this one, the limit is taken.
    """
    counts = counts_of(committables)
    for count in counts:
        before = [
            dead
            for recent in state.recent[1 - kept :]
            for dead in recent.dead
            if dead.sink == count.sink
        ]
        rows = count.rows + sum(dead.rows for dead in before)
        dead = count.dead + sum(entry.dead for entry in before)
        if count.dead and dead >= MIN_DEAD and dead > count.most * rows:
            return DeadLettersError(
                f"{count.dead} of {count.rows} rows of this epoch are dead letters, and {dead} of "
                f"{rows} over the last {kept} epochs: more than deadlettermax allows "
                f"({count.most:.4%}). Nothing of the epoch is written.",
                job=state.job,
                epoch=epoch,
                remedy="correct the input or the target; what was refused is named in earlier dead "
                "letters, or by a run without the option deadletter. If so many are expected, raise "
                "deadlettermax.",
            )
    return tuple(Dead(count.sink, count.rows, count.dead) for count in counts)


def unsettled(job: str, epoch: int, why: str = "") -> ContentionError:
    """The error after ``MAX_REFUSALS``; ``why``: what the target said at last."""
    last = f" At last: {why}" if why else ""
    return ContentionError(
        f"The target refused other rows each of {MAX_REFUSALS} times: something else changes it, or a "
        f"trigger of it decides by more than the row.{last}",
        job=job,
        epoch=epoch,
        remedy="restart the query; the epoch is written again.",
    )
