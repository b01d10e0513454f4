"""Manifests: what readers see under idempotent, and that it stays little to read and to commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from abs_clients.s3.objects import Objects
from abs_core.coordinator import Coordinator
from abs_core.errors import CorruptionError
from abs_core.events import Event, Swept
from abs_core.model import JobState
from abs_sinks.s3 import S3Register, committed_files
from abs_sinks.s3 import idempotent as s3_idempotent
from abs_sinks.s3 import manifests as manifests_module
from abs_sinks.s3 import register as s3_register
from abs_sinks.s3.idempotent import IdempotentCommitter, Markers
from abs_sinks.s3.manifests import CommittedFile, ManifestName, Manifests
from abs_sinks.s3.testing import FolderHarness
from abs_testing.case import Case, rows
from abs_testing.cuts import Cut, Halted
from tests.planted import planted

pytestmark = pytest.mark.services

LEFT, RIGHT = rows(0, 3), rows(10, 3)
STATE = JobState("0123456789abcdef", "job", "target", "lineage", 2, "run", frontier=9)


@pytest.fixture
def protocol() -> str:
    return "idempotent"


@pytest.fixture
def fold(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many manifests are folded into one: fewer, so that few epochs show it."""
    monkeypatch.setattr(manifests_module, "FOLD", 4)
    return 4


def test_many_epochs_list_few_manifests_and_name_every_file(
    harness: FolderHarness, fold: int
) -> None:
    manifests = Manifests(harness.options, "job")
    listed: tuple[str, ...] = ()
    epochs = fold * fold + fold + 3
    most = 0
    for epoch in range(epochs):
        state = replace(STATE, frontier=epoch)
        listed = manifests.add(listed, state, epoch, [CommittedFile(f"key{epoch}", 1, "00")])
        most = max(most, len(listed))
    assert most <= 3 * fold
    levels = [name.level for text in listed if (name := ManifestName.parse(text)) is not None]
    assert levels == [2, 1, 0, 0, 0]
    found = [file.key for name in listed for file in manifests.read(name)]
    assert found == [f"key{epoch}" for epoch in range(epochs)]
    assert manifests.names_of(listed, 5) >= {"key5"}


def test_a_reader_sees_whole_epochs_and_no_loser(harness: FolderHarness, case: Case) -> None:
    run = case.run()
    run.attempt(0).write(*LEFT).pre_commit()  # it loses
    shares = run.tasks(0, LEFT, RIGHT)
    assert len(harness.keys()) == 3, "objects are put at once"
    case.holds(when="before the epoch is finished")
    run.commit(0, shares)
    case.finished(LEFT, RIGHT, when="after the epoch")
    assert [file.key for file in committed_files(harness.options)] == harness.keys()


def test_a_folder_of_several_protocols_reads_as_one(harness: FolderHarness) -> None:
    Case(harness).run("one").epoch(0, LEFT)
    by_manifest = harness.options
    common = replace(by_manifest.common, protocol="2pc")
    harness.use(replace(by_manifest, common=common))
    case = Case(harness)
    case.run("two").epoch(0, RIGHT)
    assert len(committed_files(harness.options)) == 2
    assert len(committed_files(by_manifest)) == 1


def test_a_job_may_change_its_protocol_and_keeps_what_it_committed(harness: FolderHarness) -> None:
    parts = [rows(10 * number, 2) for number in range(4)]
    for epoch, protocol in enumerate(("idempotent", "2pc", "wal", "idempotent")):
        common = replace(harness.options.common, protocol=protocol)
        harness.use(replace(harness.options, common=common))
        Case(harness).run().epoch(epoch, parts[epoch])
    common = replace(harness.options.common, protocol="2pc")
    harness.use(replace(harness.options, common=common))
    assert sorted(row for part in parts for row in part) == sorted(harness.committed())


def test_a_sweep_never_deletes_what_a_manifest_names(harness: FolderHarness, case: Case) -> None:
    with pytest.raises(Halted):  # its markers stay
        case.run(cut=Cut("forget")).epoch(0, LEFT, RIGHT)
    committer = case.sink().committer()
    marked = Markers(harness.options).list("job")
    assert len(marked) == 2
    committer.abort([doubt.handle for doubt in marked])
    assert Markers(harness.options).list("job") == []
    case.finished(LEFT, RIGHT, when="after a sweep of committed handles")


def left_by_a_killed_run_is_not_told(case: Case) -> None:
    """Of a run that died behind its commit the next one tells nothing as aborted."""
    killed = case.run(cut=Cut("forget"))
    with pytest.raises(Halted):
        killed.epoch(0, LEFT)
    undecided = killed.attempt(1).write(*LEFT).pre_commit()
    assert undecided.committable is not None
    events: list[Event] = []
    later = case.run()
    Coordinator(later.who, later.store, later.committer, observe=events.append).begin(1)
    swept = [event.handles for event in events if isinstance(event, Swept)]
    assert swept == [(str(undecided.committable.handle),)]


def test_what_a_killed_run_has_committed_is_not_told_as_aborted(
    harness: FolderHarness, case: Case
) -> None:
    left_by_a_killed_run_is_not_told(case)
    case.run().epoch(1, LEFT)
    assert Markers(harness.options).list("job") == []


def test_a_planted_sweep_that_tells_it_is_found(case: Case) -> None:
    with planted((IdempotentCommitter, "_is_listed", lambda *_: False)):
        left_by_a_killed_run_is_not_told(case)


@pytest.mark.parametrize(
    ("generation", "last", "over"),
    [(1, 12, True), (2, 9, True), (2, 10, False), (3, 9, False), (3, 10, False)],
)
def test_a_manifest_is_over_where_no_run_can_list_it_any_more(
    generation: int, last: int, *, over: bool
) -> None:
    assert ManifestName(0, last, last, generation, "0" * 16).is_over(STATE) is over


def test_a_manifest_that_a_commit_is_about_to_list_outlives_the_cleaning_of_another(
    harness: FolderHarness,
    case: Case,
) -> None:
    run = case.run()
    run.epoch(0, LEFT)
    before = run.state()
    manifests = Manifests(harness.options, "job")
    found = S3Register(harness.options).cell("job")
    assert found is not None
    listed = manifests.add(found[0].manifests, before, 1, [CommittedFile("key", 1, "00")])
    case.sink().committer().forget(before)  # as another process of this run does, meanwhile
    assert set(manifests.all()) == set(listed), "what is about to be listed is still there"
    run.epoch(1, RIGHT)  # by another manifest: the first one never counts
    assert set(listed) - set(manifests.all()) == set(listed) - set(found[0].manifests)
    case.finished(LEFT, RIGHT, when="after the epoch that the manifest was of")


def test_a_change_of_the_register_keeps_its_manifests(harness: FolderHarness, case: Case) -> None:
    case.run().epoch(0, LEFT)
    before = S3Register(harness.options).cell("job")
    assert before is not None
    case.run().begin(1)  # raises the generation, by a store that has not read the cell
    after = S3Register(harness.options).cell("job")
    assert after is not None
    assert after[0].manifests == before[0].manifests != ()
    assert after[0].state.generation == before[0].state.generation + 1


def test_a_reader_whose_manifest_is_folded_meanwhile_begins_anew(
    harness: FolderHarness, case: Case, fold: int
) -> None:
    run = case.run()
    for epoch in range(fold + 1):
        run.epoch(epoch, rows(10 * epoch, 1))
    found = S3Register(harness.options).cell("job")
    assert found is not None
    names = [ManifestName.parse(name) for name in found[0].manifests]
    assert [(name.level, name.first, name.last) for name in names if name] == [
        (1, 0, fold - 1),
        (0, fold, fold),
    ]
    assert len(Manifests(harness.options, "job").all()) == 2, "folded ones are deleted"
    case.finished(*[rows(10 * epoch, 1) for epoch in range(fold + 1)], when="after a fold")


def test_a_marker_that_is_damaged_is_named_by_a_sweep(harness: FolderHarness, case: Case) -> None:
    run = case.run()
    left = run.attempt(0).write(*LEFT).pre_commit().committable
    assert left is not None
    objects = Objects(harness.options.bucket)
    # Other tests leave markers in this bucket, too.
    keys = [found.key for found in objects.list(harness.options.path.folder)]
    (marker,) = [key for key in keys if key.endswith(".marker")]
    objects.put(marker, b"\xff\xfe")
    with pytest.raises(CorruptionError, match=r"\.marker cannot be read") as refused:
        run.committer.abort([left.handle])
    assert "restore" in refused.value.remedy


@pytest.mark.parametrize("module", ["register", "manifests", "idempotent"])
def test_an_object_of_absurd_size_is_not_read_into_memory(
    module: str, harness: FolderHarness, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = case.run()
    run.epoch(0, LEFT)
    left = run.attempt(1).write(*RIGHT).pre_commit().committable
    assert left is not None
    if module == "manifests":
        monkeypatch.setattr(manifests_module, "MAX_MANIFEST_BYTES", 20)
    elif module == "register":
        monkeypatch.setattr(s3_register, "MAX_CELL_BYTES", 20)
    else:
        monkeypatch.setattr(s3_idempotent, "MAX_CELL_BYTES", 20)
    reads: dict[str, Callable[[], object]] = {
        "register": lambda: committed_files(harness.options),
        "manifests": lambda: committed_files(harness.options),
        "idempotent": lambda: run.committer.abort([left.handle]),
    }
    with pytest.raises(CorruptionError, match="20 at most") as refused:
        reads[module]()
    assert "who else writes" in refused.value.remedy
