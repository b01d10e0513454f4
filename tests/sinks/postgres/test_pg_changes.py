"""Options that change between two runs of a job, on a real server."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import permutations

import pytest

from abs_testing.check_changes import Change, check_changes
from tests import sample
from tests.kit.changing import changing_table
from tests.sample import cut

pytestmark = [pytest.mark.services, pytest.mark.timeout(3600)]

PROTOCOLS = list(permutations(("2pc", "wal", "wal upsert", "idempotent"), 2))
OPTIONS = [
    pair
    for one, other in (
        ("2pc", "2pc elsewhere"),
        ("2pc", "2pc otherwise"),
        ("wal", "wal elsewhere"),
        ("idempotent", "idempotent elsewhere"),
    )
    for pair in ((one, other), (other, one))
]
CASES = {
    "protocols": (PROTOCOLS, True, True),
    "options": (OPTIONS, False, True),
    "protocols, register elsewhere": (PROTOCOLS[:1] + PROTOCOLS[3:4], True, False),
    "options, register elsewhere": (OPTIONS[:6], False, False),
}
SAMPLED = 3


@sample.cases(2)
@pytest.mark.parametrize("name", CASES)
def test_a_change_between_two_runs_loses_and_doubles_nothing(
    shared_database: str, name: str
) -> None:
    def sampled(found: Sequence[Change]) -> list[Change]:
        return cut(found, SAMPLED, f"PostgreSQL {name}")

    pairs, finds, own_register = CASES[name]
    opener = partial(changing_table, shared_database, own_register=own_register)
    print(name, check_changes(opener, pairs, choose=sampled, finds=finds), sep=": ")


@pytest.mark.campaign
@pytest.mark.parametrize("name", CASES)
def test_no_change_between_two_runs_loses_or_doubles_a_row(shared_database: str, name: str) -> None:
    pairs, finds, own_register = CASES[name]
    opener = partial(changing_table, shared_database, own_register=own_register)
    done = check_changes(opener, pairs, finds=finds)
    print(name, done, *(f"{change}: {said}" for change, said in done.refused.items()), sep="\n")
