"""While a person is asked, others act: what was consented to is done, or nothing is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import typer

from abs_cli.sites import Registers
from abs_core.certificate import MemoryCertificates
from abs_core.errors import AbsError
from abs_core.model import JobState
from abs_core.registers import FileRegister
from abs_testing.case import JOB, Case, rows
from tests.kit.command import abs_
from tests.planted import planted
from tests.sinks.delta.harness import TableHarness

ASKING = (("register", "retire"), ("job", "reset"), ("job", "remove"))


class World:
    """A job that has written one epoch into a table of its own."""

    def __init__(self, folder: Path) -> None:
        self.harness = TableHarness(str(folder), {})
        self.case, self.checkpoint = Case(self.harness), MemoryCertificates()
        self.case.run(certificates=self.checkpoint).epoch(0, rows(0, 2))
        self.url = ("--url", f"delta:{self.harness.options.path}")

    def state(self) -> JobState | None:
        stored = FileRegister(Path(self.harness.options.path) / "_abs" / "register").load(JOB)
        return None if stored is None else stored.state

    def meanwhile(self) -> list[Callable[[], object]]:
        """What others may do."""
        return [
            *(partial(abs_, *words, JOB, "--yes", *self.url) for words in ASKING),
            partial(abs_, "register", "rename", JOB, "new", *self.url),
            partial(abs_, "in-doubt", "abort", JOB, "--fence", *self.url),
            partial(abs_, "in-doubt", "commit", JOB, *self.url),
            lambda: self.case.run(certificates=self.checkpoint).epoch(1, rows(10, 2)),
            lambda: self.case.run(certificates=self.checkpoint).tasks(1, rows(10, 2)),
            self._begins_anew,
            lambda: None,
        ]

    def _begins_anew(self) -> None:
        abs_("job", "reset", JOB, "--yes", *self.url)
        self.case.run(lineage="another").epoch(0, rows(20, 2))


ACTS = 10


def asked(words: tuple[str, str], act: int, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """One is asked, and another one acts before the answer."""
    world = World(folder)
    before = world.state()
    acts = world.meanwhile()
    assert len(acts) == ACTS
    answered: list[JobState | None] = []

    def confirm(question: str) -> bool:
        patch.undo()
        with suppress(AbsError):
            acts[act]()
        answered.append(world.state())
        return True

    with world.case:
        patch.setattr(typer, "confirm", confirm)
        result = abs_(*words, JOB, *world.url)
        (then,) = answered
        if then == before:
            assert (result.exit_code, world.state()) == (0, None), result.output
        else:
            assert isinstance(result.exception, AbsError), f"{words} after act {act}"
            assert world.state() == then, f"{words} after act {act} has changed the register"


LATE = pytest.mark.campaign


@pytest.mark.parametrize("words", [pytest.param(w, marks=LATE) for w in ASKING[::2]] + [ASKING[1]])
def test_what_changes_while_a_person_is_asked_is_not_deleted(
    words: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for act in range(ACTS):
        asked(words, act, tmp_path / str(act), monkeypatch)


@pytest.mark.campaign
@pytest.mark.parametrize("words", ASKING[1:])
def test_a_command_that_deletes_what_nobody_consented_to_is_found(
    words: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planted((Registers, "check_same", lambda self, asked: None)):
        for act in range(ACTS):
            asked(words, act, tmp_path / str(act), monkeypatch)
