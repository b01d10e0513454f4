"""Epoch by epoch: one that is in a target and not in another is named, with what is where."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from abs_audit import EpochFound, Files, Held, audit, by_epoch
from abs_audit.render import show_epochs
from abs_core.errors import SchemaError
from tests.audit.conftest import BY_ID, Records, records

EPOCHS = {0: range(5), 1: range(5, 8), 2: range(8, 12)}
TARGETS = ("table", "topic", "bucket")


ALL = range(12)


def look(
    held: Mapping[str, Sequence[int]],
    frontier: int | None,
    since: Mapping[str, int] | None = None,
) -> list[EpochFound]:
    """
    Args:
        held: the ids in each target.
    """
    epochs = {epoch: rows(ids) for epoch, ids in EPOCHS.items()}
    reports = {n: audit(rows(ALL), rows(ids), BY_ID, epochs=epochs) for n, ids in held.items()}
    return by_epoch(reports, frontier, since)


def rows(ids: Sequence[int], value: str = "v") -> Records:
    return records({"id": list(ids), "value": [f"{value}{n}" for n in ids]})


def shortcomings(found: Sequence[EpochFound]) -> list[str]:
    return [each.shortcoming for each in found if each.shortcoming]


def test_committed_epochs_in_all_targets_and_others_in_none_are_clean() -> None:
    found = look({name: range(8) for name in TARGETS}, frontier=1)
    assert shortcomings(found) == []
    assert [(f.epoch, f.committed, dict(f.found)) for f in found] == [
        (0, True, dict.fromkeys(TARGETS, Held(5, 5))),
        (1, True, dict.fromkeys(TARGETS, Held(3, 3))),
        (2, False, dict.fromkeys(TARGETS, Held(4, 0))),
    ]


@pytest.mark.parametrize("target", TARGETS)
def test_a_committed_epoch_that_is_missing_in_one_target_is_named(target: str) -> None:
    without = [*EPOCHS[0], *EPOCHS[2]]
    held = {name: without if name == target else range(12) for name in TARGETS}
    assert shortcomings(look(held, frontier=2)) == [
        f"epoch 1 is committed; there are 0 rows in {target} (3 expected)"
    ]


def test_a_part_of_an_epoch_is_no_epoch() -> None:
    held = {"table": range(12), "topic": range(11), "bucket": range(12)}
    assert shortcomings(look(held, frontier=2)) == [
        "epoch 2 is committed; there are 3 rows in topic (4 expected)"
    ]


@pytest.mark.parametrize("frontier", [None, 0])
def test_rows_of_an_epoch_that_is_not_committed_are_named(frontier: int | None) -> None:
    begun = EPOCHS[0] if frontier == 0 else range(0)
    held = {"table": begun, "topic": [*begun, *EPOCHS[2]], "bucket": begun}
    assert shortcomings(look(held, frontier)) == [
        "epoch 2 is not committed; there are 4 rows in topic (0 expected)"
    ]


def test_a_target_with_some_of_the_rows_must_have_those_of_each_epoch() -> None:
    epochs = {epoch: rows(ids) for epoch, ids in EPOCHS.items()}
    even = rows([n for n in ALL if not n % 2])
    lacking = audit(even, rows([0, 2, 4, 8, 10]), BY_ID, epochs=epochs)
    whole = audit(even, even, BY_ID, epochs=epochs)
    assert shortcomings(by_epoch({"whole": whole, "lacking": lacking}, 2)) == [
        "epoch 1 is committed; there are 0 rows in lacking (1 expected)"
    ]


def test_a_target_that_was_added_later_need_not_have_earlier_epochs() -> None:
    held = {"table": ALL, "topic": [*EPOCHS[1], *EPOCHS[2]]}
    assert shortcomings(look(held, frontier=2, since={"topic": 1})) == []
    assert len(shortcomings(look(held, frontier=2))) == 1


def test_without_a_key_a_changed_record_is_not_its_epochs() -> None:
    epochs = {epoch: rows(ids) for epoch, ids in EPOCHS.items()}
    found = audit(rows(ALL), rows(ALL, "other"), epochs=epochs).epochs
    assert found == {epoch: Held(len(ids), 0) for epoch, ids in EPOCHS.items()}


def test_an_epochs_records_may_have_no_types_and_more_columns(tmp_path: Path) -> None:
    file = tmp_path / "0.json"
    file.write_text("".join(f'{{"ID": {n}, "more": [{n}]}}\n' for n in EPOCHS[0]))
    epochs = {0: Files((str(file),))}
    assert audit(rows(ALL), rows(ALL), BY_ID, epochs=epochs).epochs == {0: Held(5, 5)}
    file.write_text('{"other": 1}')
    with pytest.raises(SchemaError, match="epoch's records have no column"):
        audit(rows(ALL), rows(ALL), BY_ID, epochs=epochs)


def test_people_see_each_epoch_that_is_torn() -> None:
    out = io.StringIO()
    held = {"table": range(12), "topic": range(8), "bucket": range(12)}
    show_epochs(look(held, frontier=2), Console(file=out, width=200))
    assert out.getvalue().splitlines() == [
        "  - epoch 2 is committed; there are 0 rows in topic (4 expected)",
        "NOT CLEAN  epoch by epoch: 3 looked for in table, topic, bucket; 3 are committed",
    ]
