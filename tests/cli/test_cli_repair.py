"""`abs register repair`: what is gone in a target is written to it once more, and not twice."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from abs_cli import repair as repairing
from abs_core.contracts import Task
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import (
    ConfigError,
    ProtocolError,
    ReplayMismatchError,
    TargetWentBackError,
)
from abs_core.model import AND, Wrote, job_key
from abs_core.protocol import RunIdentity
from abs_core.several import CompositeCommitter
from abs_core.sinkmap import STRIDE, number_of
from abs_testing.case import JOB, Case, raises, rows
from abs_testing.harness import Row, batch_of
from tests.kit.command import abs_, abs_prints
from tests.planted import planted
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


def repaired_each_time(case: Case, harness: TableHarness) -> None:
    for turn in (1, 2, 3):
        raises(TargetWentBackError, lambda: case.run().begin(3))
        told = json.loads(abs_prints(0, *repair(harness, "1 to 2", "--json")))
        for each, written in zip(told, (SECOND, THIRD), strict=True):
            write_again(case, each["token"], written)
        abs_prints(0, *repair(harness, "1 to 2", "--done"))
        case.holds(FIRST, SECOND, THIRD, when=f"after repair run {turn}")
        if turn < 3:
            harness.table().restore(1)
    case.run().epoch(3, LAST)
    case.holds(FIRST, SECOND, THIRD, LAST, when="after three repair runs")


def test_what_goes_back_again_is_repaired_again(case: Case, harness: TableHarness) -> None:
    repaired_each_time(case, harness)


def test_a_repair_run_that_takes_the_first_ones_tokens_is_found(
    case: Case, harness: TableHarness
) -> None:
    def by_epoch(data: bytes, **_: int) -> Any:
        return SimpleNamespace(hexdigest=lambda: "")

    with planted((repairing, "blake2b", by_epoch), by=TargetWentBackError):
        repaired_each_time(case, harness)


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


def test_one_of_several_targets_is_repaired_alone(tmp_path: Path) -> None:
    tables = {name: TableHarness(str(tmp_path / name), {}) for name in ("here", "there")}
    sinks = {name: table.new_sink() for name, table in tables.items()}
    named = tuple((name, sink.target_id) for name, sink in sinks.items())

    def started() -> Coordinator:
        committers = [([n], sink.committer()) for n, sink in enumerate(sinks.values())]
        committer = CompositeCommitter(committers, number_of, lambda *_: ConfigError("", remedy=""))
        target = AND.join(identity for _, identity in named)
        who = RunIdentity(JOB, "lineage", secrets.token_hex(4), target, sinks=named)
        return Coordinator(who, sinks["here"].register(), committer, co_commit=False)

    def epoch(number: int, *written: list[Row]) -> None:
        run, shares = started(), list[Wrote]()
        state, _ = run.begin(number)
        for place, (sink, some) in enumerate(zip(sinks.values(), written, strict=True)):
            name = state.register, JOB, state.generation, number, place * STRIDE
            writer = sink.writer(Task(*name, secrets.token_hex(6)))
            writer.write(batch_of(some))
            shares.append(Wrote(len(some), writer.pre_commit()))
        run.commit(Report(number, shares, f"epoch {number}"))

    epoch(0, FIRST, FIRST)
    back = tables["there"].backup()
    epoch(1, SECOND, THIRD)
    back()
    error = raises(TargetWentBackError, lambda: started().begin(2))
    assert "(sink there) no longer has the 4 rows of the finished epoch(s) 1." in error.what
    file = tmp_path / "sinks.toml"
    told = [
        f'[sinks.{name}]\nformat = "abs-delta"\noptions = {{ path = "{table.options.path}" }}\n'
        for name, table in tables.items()
    ]
    file.write_text(f'job = "{JOB}"\nregister = "here"\n' + "\n".join(told))
    command = ("register", "repair", JOB, "--sinks", file, "--epochs", "1", "--sink", "there")
    [lost] = json.loads(abs_prints(0, *command, "--json"))
    assert (lost["rows"], lost["token"].endswith("-there")) == (4, True)
    with Case(tables["there"]) as case:
        write_again(case, lost["token"], THIRD)
    abs_prints(0, *command, "--done")
    epoch(2, LAST, LAST)
    for name, expected in (("here", SECOND), ("there", THIRD)):
        assert sorted(tables[name].read()) == sorted([*FIRST, *expected, *LAST]), name
