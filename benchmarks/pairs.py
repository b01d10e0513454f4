"""Runs the sides of a comparison interleaved: A B, B A, A B, ... after rounds that do not count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.ratios import Sample


@dataclass(frozen=True, slots=True)
class Side:
    """One of the things compared.

    Args:
        name: as tables show it.
        run: does it once and says what it took; what need not be timed is done inside, untimed.
    """

    name: str
    run: Callable[[], Sample]


Tell = Callable[[str, str, Sample], None]
"""Is told of each run: the round ("warm-up 1", "3 of 10"), the side, the sample."""


def order(count: int, turn: int) -> list[int]:
    """The order in which ``count`` sides run in a round: each is first, second, ... in its turn.

    So that no side always runs right after the one that leaves the most behind (dirty pages, heat).
    """
    return [(turn + step) % count for step in range(count)]


def interleave(
    sides: Sequence[Side], *, pairs: int, warm_up: int = 1, tell: Tell
) -> Mapping[str, list[Sample]]:
    """Run all sides in each of ``warm_up + pairs`` rounds; the samples of the counted rounds.

    Returns:
        for each side by name its ``pairs`` samples; those at the same place are of one round.
    """
    samples: dict[str, list[Sample]] = {side.name: [] for side in sides}
    for turn in range(warm_up + pairs):
        counted = turn >= warm_up
        label = f"{turn - warm_up + 1} of {pairs}" if counted else f"warm-up {turn + 1}"
        for place in order(len(sides), turn):
            side = sides[place]
            sample = side.run()
            tell(label, side.name, sample)
            if counted:
                samples[side.name].append(sample)
    return samples
