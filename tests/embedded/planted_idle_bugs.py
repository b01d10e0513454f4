"""The runtime with one rule on event time broken: splits that pause and come back show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from abs_core.barriers.alignment import STRATEGIES, SnapshotStrategy
from abs_embedded.assembly import Assembly, AttemptSettings, Parts, assemble
from abs_embedded.sources import SourceOperator
from abs_embedded.task import Task
from tests.embedded.planted_bugs import FirstWatermark
from tests.model.simulation.run import Bugs


class NeverIdle(SourceOperator):
    """A split that has no data holds back event time for ever."""

    def _nothing(self, reading: Any, emit: Any) -> None:
        pass


class BackAndIdle(SourceOperator):
    """A split that comes back goes on being taken for idle: event time does not wait for it."""

    def _back(self, reading: Any, emit: Any) -> None:
        idle = reading.idle
        super()._back(reading, emit)
        reading.idle = idle


class HearsOfNoIdleInput(Task):
    """An input all of whose splits are idle holds back event time downstream."""

    def _advance(self) -> None:
        self._idle.clear()
        super()._advance()


def source_as(
    kind: type[SourceOperator],
) -> Callable[[AttemptSettings, frozenset[str], Parts], Assembly]:
    """Sources are of this kind."""

    def made(how: AttemptSettings, operators: frozenset[str], parts: Parts) -> Assembly:
        assembly = assemble(how, operators, parts)
        for task in assembly.tasks:
            if isinstance(task.operator, SourceOperator):
                task.operator.__class__ = kind
        return assembly

    return made


ALIGNED = STRATEGIES["aligned"]

PLANTED_IDLE: dict[str, tuple[SnapshotStrategy, Bugs]] = {
    "idleness ignored": (ALIGNED, Bugs(assemble=source_as(NeverIdle))),
    "an idle input holds event time": (ALIGNED, Bugs(task=HearsOfNoIdleInput)),
    "a split that is back does not hold event time": (
        ALIGNED,
        Bugs(assemble=source_as(BackAndIdle)),
    ),
    "watermark of the first input": (ALIGNED, Bugs(task=FirstWatermark)),
}
"""What only splits that pause and come back show, or show as well."""
