"""Draws the kills from a seed, before the job starts. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from abs_chaos.moments import Moment
from abs_core.errors import OptionError

MAX_DELAY_S = 0.15
"""Of a kill while tasks write: about as long as they do."""

UNSEEN = (Moment.WRITING, Moment.BETWEEN)
"""The phases of a job whose sink is not known, besides the one that every plan has."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One planned SIGKILL.

    Args:
        epoch: the first epoch in which it may happen.
        moment: the awaited phase.
        delay_s: seconds after the phase was seen.
    """

    epoch: int
    moment: Moment
    delay_s: float

    def later(self, epoch: int) -> Kill:
        """The same kill, not before ``epoch``."""
        return Kill(max(epoch, self.epoch), self.moment, self.delay_s)


def schedule(
    seed: int, turns: Sequence[Moment], kills: int, epochs: int, *, spark: bool = True
) -> tuple[Kill, ...]:
    """Draw the kills of one run.

    One of them is between the sink's ``commit()`` and Spark's ``commits/N`` (if Spark runs the
    job). The others take the phases ``turns`` in turn, in a random order. A kill during recovery
    has the epoch of the one before it; all others are in different epochs over the whole job.
    Raises OptionError if there are too few epochs.
    """
    most = max(0, epochs - 2)
    if not 0 <= kills <= most:
        raise OptionError(
            f"{kills} kills were asked for; {epochs} epochs have room for {most}.",
            remedy="ask for fewer, or give the job more input.",
        )
    draw = random.Random(seed)  # noqa: S311 (a demo's schedule is no secret)
    blocks = _blocks(draw, turns, kills, spark=spark)
    planned: list[Kill] = []
    for index, block in enumerate(blocks):
        # One block for each stretch of the job; the last epoch is left for the end.
        first, end = (1 + most * place // len(blocks) for place in (index, index + 1))
        epoch = draw.randrange(first, end)
        planned += [Kill(epoch, moment, _delay(draw, moment)) for moment in block]
    return tuple(planned)


def _blocks(
    draw: random.Random, turns: Sequence[Moment], kills: int, *, spark: bool
) -> list[list[Moment]]:
    """The phases in the order of the kills; a recovery goes with the kill before it."""
    moments: list[Moment] = [turns[index % len(turns)] for index in range(kills - spark)]
    recoveries = moments.count(Moment.RECOVERING)
    blocks: list[list[Moment]] = [[m] for m in moments if m is not Moment.RECOVERING]
    blocks += [[Moment.COMMITTED]] * (spark and bool(kills))
    draw.shuffle(blocks)
    preferred = sorted(blocks, key=lambda block: block[0] is not Moment.PREPARED)
    for block in preferred[:recoveries]:
        block.append(Moment.RECOVERING)
    return blocks


def _delay(draw: random.Random, moment: Moment) -> float:
    match moment:
        case Moment.WRITING | Moment.RECOVERING:
            return draw.uniform(0.0, MAX_DELAY_S)
        case Moment.PREPARED:
            return draw.uniform(0.0, 0.01)
        case _:
            return 0.0  # the phase lasts a few milliseconds
