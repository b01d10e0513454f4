"""The contract can fail on S3: each defect that is planted is found by its rule of ``check_sink``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain

import pytest

from abs_clients.s3.objects import Objects
from abs_core.model import Committable, HandleName, Outcome
from abs_services import S3Service
from abs_sinks.s3 import S3Register
from abs_sinks.s3.idempotent import IdempotentCommitter, Markers
from abs_sinks.s3.testing import open_folder
from abs_sinks.s3.twophase import TwoPhaseCommitter, TwoPhaseWriter
from abs_sinks.s3.upload_commit import PendingUploads
from abs_sinks.s3.uploads import Upload, Uploads
from abs_testing import run_check
from abs_testing.check_register import CHECKS as REGISTER_CHECKS
from abs_testing.checks import CHECKS
from tests.planted import Bug, Plant, planted
from tests.sample import cut
from tests.sinks.s3.conftest import FolderOpener

pytestmark = pytest.mark.services


def completes_too_early(plant: Plant) -> None:
    """Rows are there at pre-commit, before any decision."""

    pre_commit = TwoPhaseWriter.pre_commit

    def early(self: TwoPhaseWriter) -> Committable | None:
        committable = pre_commit(self)
        if committable is not None:
            TwoPhaseCommitter(self._options).commit([committable])
        return committable

    plant(TwoPhaseWriter, "pre_commit", early)


def takes_what_is_gone_for_committed(plant: Plant) -> None:
    """An upload that was aborted counts as done."""

    def guess(self: PendingUploads, handle: HandleName, upload: Upload) -> Outcome:
        return Outcome.COMMITTED

    plant(PendingUploads, "_look_longer", guess)


def sweeps_whatever_it_finds(plant: Plant) -> None:
    """Not by the exact handle: uploads of other jobs and of later runs go as well."""

    def abort(self: TwoPhaseCommitter, handles: Sequence[HandleName]) -> None:
        for pending in chain.from_iterable(self._by_owner().values()):
            Uploads(self._options).abort(pending.key, pending.upload_id)

    plant(TwoPhaseCommitter, "abort", abort)


def puts_the_register_on_no_condition(plant: Plant) -> None:
    """The last one to write wins."""

    def put(self: Objects, key: str, data: bytes, expected: str | None) -> str:
        return self.put(key, data)

    plant(Objects, "put_if", put)


def leaves_no_marker(plant: Plant) -> None:
    """Nobody knows which objects a loser has left."""
    plant(Markers, "put", lambda self, handle, uploads: None)


def takes_a_lost_register_for_one_that_lists_nothing(plant: Plant) -> None:
    """What the register lists counts as committed, and a missing register lists nothing."""

    def kept(self: IdempotentCommitter, handle: HandleName) -> set[str]:
        found = self._register.cell(handle.job)
        return self._committed(None if found is None else found[0], handle)

    plant(IdempotentCommitter, "_kept", kept)


def looks_for_the_next_generation_only(plant: Plant) -> None:
    """As every release did; the register goes back to generation 1, and the runs after it were idle."""
    right = Objects.between

    def between(self: Objects, prefix: str, end: str) -> list[str]:
        return [text for text in right(self, prefix, end) if text in ("1", "2")]

    plant(Objects, "between", between)


BUGS: Mapping[str, tuple[Bug, Sequence[str], str]] = {
    "completes too early": (completes_too_early, ["2pc"], "rows_are_invisible_until_commit"),
    "takes what is gone for committed": (
        takes_what_is_gone_for_committed,
        ["2pc", "wal"],
        "commit_of_an_aborted_handle_is_not_reported_as_done",
    ),
    "sweeps whatever it finds": (
        sweeps_whatever_it_finds,
        ["2pc"],
        "a_sweep_that_acts_late_harms_nothing",
    ),
    "puts the register on no condition": (
        puts_the_register_on_no_condition,
        ["2pc"],  # all of them have one register
        "a_cell_is_created_once",
    ),
    "leaves no marker": (
        leaves_no_marker,
        ["idempotent"],
        "the_loser_of_a_retried_task_changes_nothing",
    ),
    "takes a lost register for one that lists nothing": (
        takes_a_lost_register_for_one_that_lists_nothing,
        ["idempotent"],
        "a_sweep_whose_register_is_lost_keeps_what_it_committed",
    ),
    "looks for the next generation only": (
        looks_for_the_next_generation_only,
        ["2pc", "wal"],
        "a_register_that_went_back_with_its_checkpoint_is_told_by_the_target",
    ),
}
"""Each bug, the protocols that it is in, and the rule that finds it."""

CASES = [(bug, way) for bug, (_, ways, _) in BUGS.items() for way in ways]
SAMPLE = 2

Found = Callable[[str, str], None]


def keeps(rule: str, opener: FolderOpener) -> None:
    """Check one rule of the sink, or of its register."""
    for check in CHECKS:
        if check.rule == rule:
            assert run_check(opener, check)
            return
    (of_register,) = (each for each in REGISTER_CHECKS if each.__name__ == rule)
    with opener() as harness:
        try:
            of_register(lambda: S3Register(harness.options))
        except AssertionError as broken:
            raise AssertionError(f"{rule}: {broken}") from broken


@pytest.fixture
def finds(store: S3Service, given: Mapping[str, str], prefix: str) -> Found:
    """Plants a bug under a protocol, and asserts that its rule finds it."""

    def find(name: str, protocol: str) -> None:
        bug, _, rule = BUGS[name]
        opener = partial(
            open_folder, f"s3://{store.bucket}/{prefix}", {**given, "protocol": protocol}
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("abs_testing.case.PATIENCE", 0.05)
            with planted(bug, match=f"^{rule}: "):
                keeps(rule, opener)
        keeps(rule, opener)

    return find


def test_the_rule_of_some_planted_bugs_finds_them(finds: Found) -> None:
    for bug, protocol in cut(CASES, SAMPLE, "bugs planted in the S3 sink"):
        finds(bug, protocol)


@pytest.mark.campaign
@pytest.mark.parametrize(("bug", "protocol"), CASES)
def test_the_rule_of_a_planted_bug_finds_it(bug: str, protocol: str, finds: Found) -> None:
    finds(bug, protocol)
