"""`abs register repair`: what is gone in a target is written to it once more, and not twice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from abs_core.errors import ProtocolError, ReplayMismatchError, TargetWentBackError
from abs_core.model import job_key
from abs_testing.case import JOB, Case, raises, rows
from abs_testing.harness import Row
from tests.kit.command import abs_, abs_prints
from tests.sinks.delta.harness import TableHarness

FIRST, SECOND, THIRD, LAST = rows(0, 3), rows(10, 2), rows(20, 4), rows(30, 1)


@pytest.fixture
def harness(tmp_path: Path) -> TableHarness:
    return TableHarness(str(tmp_path), {})


@pytest.fixture
def case(harness: TableHarness) -> Iterator[Case]:
    """A job whose table was restored to its first epoch."""
    with Case(harness) as case:
        run = case.run(digests=True)
        run.epoch(0, FIRST)
        back = harness.backup()
        run.epoch(1, SECOND)
        run.epoch(2, THIRD)
        back()
        yield case


def repair(harness: TableHarness, epochs: str, *more: str) -> Sequence[str]:
    url = f"delta:{harness.options.path}"
    return ("register", "repair", JOB, "--url", url, "--epochs", epochs, *more)


def write_again(case: Case, token: str, written: list[Row]) -> None:
    """As a batch write with the option epoch does."""
    run = case.run(job_key(JOB, token), digests=True)
    if not run.decided(0):
        run.epoch(0, written)


def test_epochs_that_are_written_again_are_there_once(case: Case, harness: TableHarness) -> None:
    error = raises(TargetWentBackError, lambda: case.run().begin(3))
    found = re.search(r"epoch\(s\) ([0-9 to,]+)\.", error.what)
    assert found is not None
    epochs = found[1]
    told = json.loads(abs_prints(0, *repair(harness, epochs, "--json")))
    assert [(each["epoch"], each["rows"]) for each in told] == [(1, 2), (2, 4)]
    for each, written in zip(told, (SECOND, THIRD), strict=True):
        result = abs_(*repair(harness, epochs, "--done"))
        assert isinstance(result.exception, ProtocolError)
        assert "is not written again" in str(result.exception)
        write_again(case, each["token"], written)
        write_again(case, each["token"], written)  # it was not sure whether the first one was done
    abs_prints(0, *repair(harness, epochs, "--done"))
    case.run().epoch(3, LAST)
    case.holds(FIRST, SECOND, THIRD, LAST, when="after a repair run")
    # What was repaired is compared, too, at later starts.
    harness.table().restore(0)
    again = raises(TargetWentBackError, lambda: case.run().begin(4))
    assert "0 to 3" in again.what


def test_other_rows_than_were_committed_are_told(case: Case, harness: TableHarness) -> None:
    first, second = json.loads(abs_prints(0, *repair(harness, "1 to 2", "--json")))
    write_again(case, first["token"], LAST)
    fewer = abs_(*repair(harness, "1", "--done")).exception
    assert isinstance(fewer, ProtocolError)
    assert "was written with 1 rows" in str(fewer)
    write_again(case, second["token"], rows(50, 4))
    others = abs_(*repair(harness, "2", "--done")).exception
    assert isinstance(others, ReplayMismatchError)
    raises(TargetWentBackError, lambda: case.run().begin(3))


def test_an_epoch_that_is_not_recorded_cannot_be_repaired(
    case: Case, harness: TableHarness
) -> None:
    result = abs_(*repair(harness, "7"))
    assert isinstance(result.exception, ProtocolError)
    assert "does not record what epoch 7 wrote" in str(result.exception)
    assert abs_(*repair(harness, "1 and 2")).exit_code != 0


def test_a_checkpoint_with_another_input_is_told(
    case: Case, harness: TableHarness, tmp_path: Path
) -> None:
    result = abs_(*repair(harness, "1", "--checkpoint", str(tmp_path / "none")))
    assert isinstance(result.exception, ReplayMismatchError)
