"""`abs register repair`: what is gone in a target is written to it once more, and not twice."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from abs_cli import moving
from abs_cli import repair as repairing
from abs_core.contracts import Task
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import (
    ConfigError,
    OptionError,
    ProtocolError,
    ReplayMismatchError,
    TargetWentBackError,
)
from abs_core.model import AND, JobState, Shown, Wrote, job_key
from abs_core.protocol import RunIdentity
from abs_core.registers import FileRegister
from abs_core.several import CompositeCommitter
from abs_core.sinkmap import STRIDE, number_of
from abs_testing.case import JOB, Case, raises, rows
from abs_testing.harness import Row, batch_of
from tests import sample
from tests.kit.command import abs_, abs_prints
from tests.planted import Bug, Plant, planted
from tests.sinks.delta.harness import TableHarness

FIRST, SECOND, THIRD, LAST = rows(0, 3), rows(10, 2), rows(20, 4), rows(30, 1)


@pytest.fixture
def harness(tmp_path: Path) -> TableHarness:
    return TableHarness(str(tmp_path), {})


@pytest.fixture
def case(harness: TableHarness) -> Iterator[Case]:
    with gone_back(harness) as (_, case):
        yield case


@contextmanager
def gone_back(harness: TableHarness) -> Iterator[tuple[TableHarness, Case]]:
    """A job whose table was restored to its first epoch."""
    with Case(harness) as case:
        run = case.run(digests=True)
        run.epoch(0, FIRST)
        back = harness.backup()
        run.epoch(1, SECOND)
        run.epoch(2, THIRD)
        back()
        yield harness, case


def repair(harness: TableHarness, epochs: str, *more: str, job: str = JOB) -> Sequence[str]:
    url = f"delta:{harness.options.path}"
    return ("register", "repair", job, "--url", url, "--epochs", epochs, *more)


def write_again(case: Case, token: str, written: list[Row], job: str = JOB) -> None:
    """As a batch write with the options job and epoch does."""
    run = case.run(job_key(job, token), digests=True)
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


def people(case: Case, harness: TableHarness, number: int, order: Sequence[int] = ()) -> None:
    """Two people apply the page step by step, in any order; others fence and rename the job between.

    Each begins with what the job's start names, or with a part of it, and may stop anywhere; who comes
    last applies the page to its end.
    """
    random = Random(f"repair {number} {sample.seed()}")
    written = {0: FIRST, 1: SECOND, 2: THIRD}
    url = f"delta:{harness.options.path}"

    def name() -> str:
        stored = FileRegister(Path(harness.options.path) / "_abs" / "register").jobs()
        (job,) = [one.state.job for one in stored if "@" not in one.state.job]
        return job

    def person(epochs: str) -> Iterator[None]:
        told = abs_(*repair(harness, epochs, "--json", job=name()))
        yield
        for each in json.loads(told.stdout) if told.exit_code == 0 else ():
            write_again(case, each["token"], written[each["epoch"]], each["job"])
            yield
        abs_(*repair(harness, epochs, "--done", job=name()))
        yield
        abs_(*repair(harness, epochs, "--done", job=name()))

    def fence() -> Iterator[None]:
        yield
        assert abs_("in-doubt", "abort", name(), "--url", url, "--fence").exit_code == 0

    def rename() -> Iterator[None]:
        for new in ("another", JOB, "third"):
            yield
            renamed = abs_("register", "rename", name(), new, "--url", url)
            same = isinstance(renamed.exception, ConfigError)
            assert (
                renamed.exit_code == 0 or same or isinstance(renamed.exception, TargetWentBackError)
            )

    second = "1 to 2" if order else random.choice(["1 to 2", "2", "1", "0 to 2"])
    acts = [person("1 to 2"), person(second), fence(), rename()]
    for act in order or random.choices(range(len(acts)), k=random.randint(4, 18)):
        next(acts[act], None)
    for _ in person("1 to 2"):
        pass
    case.run(name()).epoch(3, LAST)
    case.holds(FIRST, SECOND, THIRD, LAST, when=f"after people repaired it, {number}")


FROZEN, MORE = range(3), range(3, 60)


@pytest.mark.parametrize(
    "number", [*FROZEN, *(pytest.param(n, marks=pytest.mark.campaign) for n in MORE)]
)
def test_two_people_who_repair_a_target_write_each_epoch_once(
    case: Case, harness: TableHarness, number: int
) -> None:
    people(case, harness, number)


TOLD_BEFORE_A_RENAME = (0, 3, 3, 1, 0, 0, 1, 1)
"""One is told, somebody renames the job, another one is told; then both write."""


def test_two_who_were_told_before_and_after_a_rename_write_each_epoch_once(
    case: Case, harness: TableHarness
) -> None:
    people(case, harness, 0, TOLD_BEFORE_A_RENAME)


def test_a_rename_that_hides_what_is_to_be_repaired_is_found(
    case: Case, harness: TableHarness
) -> None:
    with planted(renames_what_is_not_repaired):
        people(case, harness, 0, TOLD_BEFORE_A_RENAME)


def repairs_what_is_there(plant: Plant) -> None:
    plant(repairing, "_gone", lambda state, job, lost: ({}, set()))


def gives_each_generation_a_token(plant: Plant) -> None:
    right = repairing._Repair._token

    def by_generation(
        self: repairing._Repair, epoch: int, shown: Shown, batches: Mapping[str, JobState]
    ) -> tuple[str, str, bool]:
        job, token, begun = right(self, epoch, shown, batches)
        return job, f"{token}-{self.state.generation}", begun

    plant(repairing._Repair, "_token", by_generation)


def renames_what_is_not_repaired(plant: Plant) -> None:
    plant(moving, "_check_targets", lambda register, committer, state: None)


def looks_for_what_was_begun_by_name(plant: Plant) -> None:
    """As every release did that renames, of a job that was renamed before it was refused."""
    right = repairing._Repair._token

    def by_name(
        self: repairing._Repair, epoch: int, shown: Shown, batches: Mapping[str, JobState]
    ) -> tuple[str, str, bool]:
        mine = {
            key: state for key, state in batches.items() if key.startswith(f"{self.state.job}@")
        }
        return right(self, epoch, shown, mine)

    renames_what_is_not_repaired(plant)
    plant(repairing._Repair, "_token", by_name)


@pytest.mark.parametrize(
    "bug",
    [
        repairs_what_is_there,
        gives_each_generation_a_token,
        looks_for_what_was_begun_by_name,
    ],
)
def test_a_repair_that_doubles_for_two_people_is_found(bug: Bug, tmp_path: Path) -> None:
    with planted(bug):
        for number in range(20):
            with gone_back(TableHarness(str(tmp_path / str(number)), {})) as (table, case):
                people(case, table, number)


def test_a_part_of_what_is_gone_is_not_recorded(case: Case, harness: TableHarness) -> None:
    """A start compares later epochs first, and would not tell the others any more."""
    (last,) = json.loads(abs_prints(0, *repair(harness, "2", "--json")))
    write_again(case, last["token"], THIRD)
    refused = abs_(*repair(harness, "2", "--done")).exception
    assert isinstance(refused, ProtocolError)
    assert "name all: 1 to 2" in refused.remedy
    raises(TargetWentBackError, lambda: case.run().begin(3))


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


def test_a_job_with_any_name_is_repaired(harness: TableHarness) -> None:
    name = "orders of \u00e9t\u00e9/1"
    with Case(harness) as case:
        run = case.run(job_key(name))
        run.epoch(0, FIRST)
        back = harness.backup()
        run.epoch(1, SECOND)
        back()
        command = [job_key(name) if word == JOB else word for word in repair(harness, "1")]
        [lost] = json.loads(abs_prints(0, *command, "--json"))
        case.run(job_key(name, lost["token"])).epoch(0, SECOND)
        abs_prints(0, *command, "--done")
        case.run(job_key(name)).begin(2)
        case.holds(FIRST, SECOND, when="after a repair run")


def test_an_epoch_that_is_not_recorded_cannot_be_repaired(
    case: Case, harness: TableHarness
) -> None:
    result = abs_(*repair(harness, "7"))
    assert isinstance(result.exception, ProtocolError)
    assert "does not record what epoch 7 wrote" in str(result.exception)


@pytest.mark.parametrize("text", ["1 and 2", "2 to 1", "1, ", ""])
def test_what_is_no_list_of_epochs_is_refused(case: Case, harness: TableHarness, text: str) -> None:
    assert isinstance(abs_(*repair(harness, text)).exception, OptionError)


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
    unnamed = abs_(*command[:-2]).exception
    assert isinstance(unnamed, ConfigError)
    assert "writes to 2 sinks: here, there" in unnamed.what
    [lost] = json.loads(abs_prints(0, *command, "--json"))
    assert (lost["rows"], lost["token"].endswith("-there")) == (4, True)
    with Case(tables["there"]) as case:
        write_again(case, lost["token"], THIRD)
    abs_prints(0, *command, "--done")
    epoch(2, LAST, LAST)
    for name, expected in (("here", SECOND), ("there", THIRD)):
        assert sorted(tables[name].read()) == sorted([*FIRST, *expected, *LAST]), name
