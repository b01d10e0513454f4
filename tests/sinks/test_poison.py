"""Poison of each kind through kills: target and dead letters are the input, each row once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from signal import SIGKILL

import numpy as np
import pyarrow as pa
import pytest

from abs_core.crash import CrashPoint
from abs_core.errors import AbsError
from abs_services import S3Service
from abs_sinks.deadletters import writer
from abs_sinks.deadletters.letter import why_bad
from abs_sinks.postgres.letters import copy_with_letters
from abs_sinks.refusals import BadValuesError
from abs_sinks.s3 import partitions
from abs_testing.case import JOB, within
from abs_testing.check_crashes import ForkServer
from abs_testing.crash_child import DONE
from tests import sample
from tests.planted import planted
from tests.sinks.poison import (
    EPOCHS,
    RECIPES,
    Cell,
    Poisoned,
    PoisonedLife,
    cells,
    dead_in,
    folder,
    life_of,
    table,
    topic,
)

pytestmark = pytest.mark.services

Opener = Callable[[Cell], AbstractContextManager[Poisoned]]

CELLS = {cell.name: cell for cell in cells()}
ONE_OF_EACH = [
    name
    for system in RECIPES
    for name in sample.cut(
        [name for name, cell in CELLS.items() if cell.system == system], 1, f"poison, {system}"
    )
]
SAMPLED = [
    pytest.param(name, marks=() if name in ONE_OF_EACH else pytest.mark.campaign) for name in CELLS
]
QUICK = (f"{CrashPoint.AFTER_PRE_COMMIT}#4", f"{CrashPoint.AFTER_DECIDE}#2")
"""The second epoch dies: of one task, and where it is decided."""


def test_each_system_that_keeps_dead_letters_has_a_recipe() -> None:
    assert {cell.system for cell in CELLS.values()} == set(RECIPES)
    assert len(CELLS) == 15


@pytest.fixture(scope="module")
def fork_server(store: S3Service) -> Iterator[ForkServer]:
    """Its processes have the keys of the S3 server."""
    with ForkServer() as fork_server:
        yield fork_server


@pytest.fixture
def opener(request: pytest.FixtureRequest, prefix: str) -> Opener:
    """Opens a target of a cell, on the servers that it needs."""

    def opened(cell: Cell) -> AbstractContextManager[Poisoned]:
        if cell.system == "postgres":
            return table(request.getfixturevalue("shared_database"), cell)
        if cell.system == "kafka":
            kafka = request.getfixturevalue("kafka")
            kafka.start()
            return topic(kafka.bootstrap, cell)
        store = request.getfixturevalue("store")
        store.start()
        given = {"endpoint": store.endpoint, "region": store.region, "timeout": "20"}
        return folder(f"s3://{store.bucket}/{prefix}", given, cell)

    return opened


def survived(opener: Opener, cell: Cell, fork_server: ForkServer, points: Iterable[str]) -> int:
    """Kill a job at each point, on a target of its own, and finish it; how many were killed."""
    return sum(_survived(opener, cell, fork_server, point) for point in points)


def _survived(opener: Opener, cell: Cell, fork_server: ForkServer, point: str) -> bool:
    with opener(cell) as target, life_of(target, cell) as life:
        code = fork_server.live(replace(life, crash=point))
        assert code in (DONE, -SIGKILL), f"{cell.name}: exit code {code} at {point}"
        for when in (f"killed at {point}", f"killed at {point}, and a replay"):
            assert fork_server.live(life) == DONE, f"{cell.name}, {when}"
            check(target, cell, when)
            (life.folder / f"{EPOCHS - 1}.done").unlink()
        return code == -SIGKILL


def check(target: Poisoned, cell: Cell, when: str) -> None:
    """Target and dead letters are the input, each row once, and nothing is left behind."""
    recipe = RECIPES[cell.system]
    assert dead_in(target) == recipe.dead(), f"{cell.name}, {when}"
    assert target.ids() == Counter(recipe.given()), f"{cell.name}, {when}"
    assert within(60, lambda: not target.leftovers(JOB)), (when, target.leftovers(JOB))


@pytest.mark.parametrize("name", SAMPLED)
def test_poison_of_each_kind_is_dead_once_where_a_process_dies(
    opener: Opener, fork_server: ForkServer, name: str
) -> None:
    points = (*QUICK, f"{CrashPoint.INSIDE_CO_COMMIT}#2")
    # A decision and a commit are one step or two.
    assert survived(opener, CELLS[name], fork_server, points) == 2


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", CELLS)
def test_poison_of_each_kind_is_dead_once_wherever_a_process_dies(
    opener: Opener, fork_server: ForkServer, name: str
) -> None:
    points = [f"{point}#{nth}" for point in CrashPoint for nth in (1, 3)]
    assert survived(opener, CELLS[name], fork_server, points) > 5


@pytest.mark.parametrize("name", ["postgres-wal", "s3-2pc"])
def test_poison_that_is_dropped_is_found(opener: Opener, name: str) -> None:
    fewer = lambda bad: why_bad(bad)[1:]  # noqa: E731
    bugs = [(module, "why_bad", fewer) for module in (copy_with_letters, writer)]
    cell = CELLS[name]
    with (
        opener(cell) as target,
        life_of(target, cell) as life,
        planted(*bugs, by=(AssertionError, AbsError)),
    ):
        _lived(target, cell, life)


def _lived(target: Poisoned, cell: Cell, life: PoisonedLife) -> None:
    life.live()
    check(target, cell, "after a job of one process")


@pytest.mark.parametrize("name", ["s3-2pc"])
def test_a_bad_folder_by_which_another_row_is_buried_is_found(opener: Opener, name: str) -> None:
    """As it was: positions among the folders were taken for those of the rows."""
    right = partitions.Partitioning.split

    def split(
        self: partitions.Partitioning, batch: pa.RecordBatch
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        try:
            yield from right(self, batch)
        except BadValuesError as error:
            error.rows = None if error.rows is None else np.arange(len(error.rows))
            raise

    cell = CELLS[name]
    with (
        opener(cell) as target,
        life_of(target, cell) as life,
        planted((partitions.Partitioning, "split", split), by=(AssertionError, AbsError)),
    ):
        _lived(target, cell, life)
