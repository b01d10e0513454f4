"""Draws the kills from a seed, before the job starts. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from abs_chaos.moments import Moment
from abs_core.errors import OptionError
from abs_services.contracts import Kind, Outage

MAX_DELAY_S = 0.15
"""The longest delay of a kill while tasks write, until it is known how long they write."""

UNSEEN = (Moment.WRITING, Moment.WRITING, Moment.BETWEEN)
"""The phases of a job whose sink is not known, besides the one that every plan has."""

_GOLDEN = 0.618034
"""Steps of this size, in a circle, spread any number of points over it."""


AWAY_S = (1.0, 5.0)
"""How long a server is away, at least and at most."""


@dataclass(frozen=True, slots=True)
class Blow:
    """A server that goes away under the job.

    Args:
        seconds: until it is told to come back.
    """

    kind: Kind
    how: Outage
    seconds: float


@dataclass(frozen=True, slots=True)
class Kill:
    """One planned SIGKILL, or a blow.

    Args:
        epoch: the first epoch in which it may happen.
        moment: the awaited phase.
        delay_s: seconds after the phase was seen. While tasks write it is a share of the time that they
            took in the last epoch, where that is known: of ``MAX_DELAY_S``.
        blow: what happens to a server instead; the job is left alone.
        after_s: seconds after the job's start, or restart, from which on it waits for the phase.
    """

    epoch: int
    moment: Moment
    delay_s: float
    blow: Blow | None = None
    after_s: float = 0.0

    def later(self, epoch: int) -> Kill:
        """The same kill, not before ``epoch``."""
        return replace(self, epoch=max(epoch, self.epoch))


def schedule(
    seed: int, turns: Sequence[Moment], kills: int, epochs: int, *, spark: bool = True
) -> tuple[Kill, ...]:
    """Draw the kills of one run.

    One of them is between the sink's ``commit()`` and Spark's ``commits/N`` (if Spark runs the
    job). The others take the phases ``turns`` in turn, in a random order. Those while tasks write are
    spread over the time that they take. A kill during recovery has the epoch of the one before it;
    all others are in different epochs over the whole job.
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
    share = draw.random()
    for at, kill in enumerate(planned):
        if kill.moment is Moment.WRITING:
            planned[at] = replace(kill, delay_s=share * MAX_DELAY_S)
            share = (share + _GOLDEN) % 1.0
    return tuple(planned)


def by_the_clock(
    seed: int, kills: int, every_s: float, moment: Moment | None = None
) -> tuple[Kill, ...]:
    """Kills whose times are drawn anew for each: half of ``every_s`` to one and a half.

    Args:
        every_s: seconds from the job's start, or restart, to its next kill, on average.
        moment: every second kill then waits for this phase.
    """
    draw = random.Random(seed)  # noqa: S311 (a schedule is no secret)
    turns = (Moment.ANY, moment or Moment.ANY)
    return tuple(
        Kill(0, turn, _delay(draw, turn), after_s=draw.uniform(0.5, 1.5) * every_s)
        for turn in (turns[number % 2] for number in range(kills))
    )


def with_blows(
    seed: int, planned: Sequence[Kill], blows: int, kinds: Sequence[Kind]
) -> tuple[Kill, ...]:
    """The same plan, in which so many are blows, of the kinds in turn.

    No kill between ``commit()`` and ``commits/N`` becomes one, as long as there are others.
    """
    draw = random.Random(f"{seed} servers")  # noqa: S311 (a schedule is no secret)
    order = draw.sample(range(len(planned)), len(planned))
    order.sort(key=lambda place: planned[place].moment is Moment.COMMITTED)
    changed = list(planned)
    for number, place in enumerate(order[:blows]):
        kind, how = kinds[number % len(kinds)], draw.choice(tuple(Outage))
        kill = changed[place]
        moment = Moment.WRITING if kill.moment is Moment.COMMITTED else kill.moment
        blow = Blow(kind, how, draw.uniform(*AWAY_S))
        changed[place] = replace(kill, moment=moment, blow=blow)
    return tuple(changed)


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
