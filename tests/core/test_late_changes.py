"""A change of a register that stalls inside its call is not made after its deadline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import abs_core.registers
from abs_core.model import JobState
from abs_core.registers import FileRegister
from tests.kit.stalls import Stalls
from tests.planted import planted

STATE = JobState("0" * 16, "job", "target", "lineage", 1, "run")


@pytest.fixture
def stalls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stalls:
    changed = replace(STATE, generation=2)
    sends = abs_core.registers, "replace_durably"
    return Stalls(lambda: FileRegister(tmp_path), STATE, changed, sends, monkeypatch)


def test_a_register_in_a_file_sends_no_change_after_its_deadline(stalls: Stalls) -> None:
    assert stalls.check() > 5


def test_a_register_that_looks_at_the_clock_before_it_has_the_lock_is_found(stalls: Stalls) -> None:
    looks_never = (abs_core.registers, "in_time", lambda *_: None)
    with planted(looks_never, match="sent after its deadline"):
        stalls.check()
