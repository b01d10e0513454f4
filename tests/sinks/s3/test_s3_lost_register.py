"""A register that is lost between a run's start and its sweep: nothing that it committed is deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from abs_clients.s3.objects import Objects
from abs_core.errors import RegisterLostError
from abs_sinks.s3 import S3Register
from abs_sinks.s3.testing import FolderHarness
from abs_testing.case import JOB, Case, rows
from abs_testing.cuts import Cut, Halted

pytestmark = pytest.mark.services

LEFT, RIGHT, MORE = rows(0, 3), rows(10, 3), rows(20, 3)

Losing = Callable[[Objects, str, bytes], None]


def deleted(objects: Objects, key: str, older: bytes) -> None:
    objects.delete([key])


def gone_back(objects: Objects, key: str, older: bytes) -> None:
    objects.put(key, older)


@pytest.fixture
def protocol() -> str:
    return "idempotent"


@pytest.mark.parametrize("lose", [deleted, gone_back])
def test_a_sweep_that_finds_its_register_lost_says_so_and_deletes_nothing(
    harness: FolderHarness, case: Case, lose: Losing
) -> None:
    objects, key = Objects(harness.options.bucket), S3Register(harness.options).key(JOB)
    case.run().begin(0)
    older = objects.get(key)
    with pytest.raises(Halted):  # the epoch is committed; its markers stay
        case.run(cut=Cut("forget")).epoch(0, LEFT, RIGHT)
    later = case.run(cut=Cut("abort"))
    with pytest.raises(Halted):
        later.coordinator.begin(1)
    newest, files, doubts = objects.get(key), harness.keys(), later.committer.in_doubt(JOB)
    assert len(doubts) == 2
    assert older is not None
    assert newest is not None
    lose(objects, key, older.data)
    with pytest.raises(RegisterLostError, match=r"register .*\. It was looked for at s3://"):
        later.committer.abort([doubt.handle for doubt in doubts])
    assert harness.keys() == files
    objects.put(key, newest.data)
    case.run().epoch(1, MORE)
    case.finished(LEFT, RIGHT, MORE, when="after the register was restored")
