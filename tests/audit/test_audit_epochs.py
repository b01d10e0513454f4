"""Epoch by epoch: one that is in a target and not in another is named, with what is where."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest
from rich.console import Console

from abs_audit import EpochFound, audit_epochs
from abs_audit.render import show_epochs
from tests.audit.conftest import Records

EPOCHS = {0: range(5), 1: range(5, 8), 2: range(8, 12)}
TARGETS = ("table", "topic", "bucket")


def records(ids: Sequence[int]) -> Records:
    schema = pa.schema([("id", pa.int64()), ("value", pa.string())])
    return Records(pa.table({"id": list(ids), "value": [f"v{n}" for n in ids]}, schema))


def look(held: Mapping[str, Sequence[int]], frontier: int | None) -> list[EpochFound]:
    """
    Args:
        held: the ids in each target.
    """
    epochs = {epoch: records(ids) for epoch, ids in EPOCHS.items()}
    return audit_epochs(epochs, {name: records(ids) for name, ids in held.items()}, frontier)


def shortcomings(found: Sequence[EpochFound]) -> list[str]:
    return [each.shortcoming for each in found if each.shortcoming]


def test_committed_epochs_in_all_targets_and_others_in_none_are_clean() -> None:
    found = look({name: range(8) for name in TARGETS}, frontier=1)
    assert shortcomings(found) == []
    assert [(f.epoch, f.committed, f.rows, dict(f.found)) for f in found] == [
        (0, True, 5, dict.fromkeys(TARGETS, 5)),
        (1, True, 3, dict.fromkeys(TARGETS, 3)),
        (2, False, 4, dict.fromkeys(TARGETS, 0)),
    ]


@pytest.mark.parametrize("target", TARGETS)
def test_a_committed_epoch_that_is_missing_in_one_target_is_named(target: str) -> None:
    without = [*EPOCHS[0], *EPOCHS[2]]
    held = {name: without if name == target else range(12) for name in TARGETS}
    assert shortcomings(look(held, frontier=2)) == [
        f"epoch 1 is committed; of its 3 rows there are 0 in {target}"
    ]


def test_a_part_of_an_epoch_is_no_epoch() -> None:
    held = {"table": range(12), "topic": range(11), "bucket": range(12)}
    assert shortcomings(look(held, frontier=2)) == [
        "epoch 2 is committed; of its 4 rows there are 3 in topic"
    ]


@pytest.mark.parametrize("frontier", [None, 0])
def test_rows_of_an_epoch_that_is_not_committed_are_named(frontier: int | None) -> None:
    begun = EPOCHS[0] if frontier == 0 else range(0)
    held = {"table": begun, "topic": [*begun, *EPOCHS[2]], "bucket": begun}
    assert shortcomings(look(held, frontier)) == [
        "epoch 2 is not committed; of its 4 rows there are 4 in topic"
    ]


def test_a_changed_record_is_not_its_epochs() -> None:
    changed = records(range(12))
    at = changed.table.column_names.index("value")
    changed.table = changed.table.set_column(at, "value", pa.array(["other"] * 12))
    epochs = {epoch: records(ids) for epoch, ids in EPOCHS.items()}
    found = audit_epochs(epochs, {"table": records(range(12)), "topic": changed}, 2)
    assert [dict(each.found) for each in found] == [
        {"table": len(ids), "topic": 0} for ids in EPOCHS.values()
    ]


def test_people_see_each_epoch_that_is_torn() -> None:
    out = io.StringIO()
    held = {"table": range(12), "topic": range(8), "bucket": range(12)}
    show_epochs(look(held, frontier=2), Console(file=out, width=200))
    assert out.getvalue().splitlines() == [
        "  - epoch 2 is committed; of its 4 rows there are 0 in topic",
        "NOT CLEAN  epoch by epoch: 3 looked for in table, topic, bucket; 3 are committed",
    ]
