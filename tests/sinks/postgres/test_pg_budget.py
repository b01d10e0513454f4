"""How many prepared transactions the sinks of one epoch take together."""

from __future__ import annotations

import pytest

from abs_core.model import Severity
from abs_sinks.postgres.check.budget import Room, Shared, findings_of_room

SINKS = [
    Shared(("payments", "lines"), "2pc"),
    Shared(("items",), "2pc"),
    Shared(("totals", "days"), "wal"),
]
TASKS = 4
WANTED = 2 * TASKS + 1


@pytest.mark.parametrize(
    ("most", "taken", "found"),
    [
        (WANTED - 1, 0, [Severity.ERROR]),
        (WANTED, 0, [Severity.WARNING]),
        (2 * WANTED + 3, 4, [Severity.WARNING]),
        (2 * WANTED + 3, 3, []),
    ],
)
def test_sinks_together_take_one_for_each_task_under_2pc_and_one_for_the_epoch_under_wal(
    most: int, taken: int, found: list[Severity]
) -> None:
    findings = findings_of_room(SINKS, Room("server", most, taken), TASKS)
    assert [finding.severity for finding in findings] == found
    assert all(f"{WANTED} transactions" in finding.what for finding in findings)
