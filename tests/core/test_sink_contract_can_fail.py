"""A sink that breaks a rule is found by the check that bears the rule's name."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from abs_testing import ForkServer, check_crashes, run_check
from abs_testing.checks import CHECKS
from tests.core import planted_sink_bugs, planted_start_bugs
from tests.kit.fake_harness import FakeHarness, open_fake
from tests.planted import Bug, planted

PLANTED = planted_sink_bugs.PLANTED | planted_start_bugs.PLANTED


@pytest.mark.parametrize("broken", PLANTED, ids=lambda broken: broken.__name__)
def test_check_sink_finds_a_sink_that(broken: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    protocol, write, rules = PLANTED[broken]
    monkeypatch.setattr("abs_testing.case.PATIENCE", 0.05)
    opener = partial(open_fake, protocol, write)
    for check in CHECKS:
        if check.rule in rules:
            with planted(broken, match=check.rule):
                run_check(opener, check)


def test_check_crashes_finds_a_commit_in_two_transactions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", here)
    monkeypatch.syspath_prepend(here)
    torn = importlib.import_module("torn_sink")
    numbers = itertools.count()

    @contextmanager
    def opener() -> Iterator[FakeHarness]:
        path = tmp_path / f"{next(numbers)}.sqlite"
        with open_fake("wal", "append", path=path) as harness:
            harness.new_sink = partial(torn.torn_sink, path)
            yield harness

    try:
        with ForkServer() as fork_server, pytest.raises(AssertionError, match="inside_co_commit"):
            check_crashes(opener, fork_server, passages=1)
    finally:
        sys.modules.pop("torn_sink")
