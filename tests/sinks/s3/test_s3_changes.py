"""Options that change between two runs of a job, on a real server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import permutations

import pytest

from abs_core.crash import CrashPoint
from abs_services import S3Service
from abs_testing import ForkServer, check_changed_crashes
from abs_testing.check_changes import Change, check_changes
from tests import sample
from tests.kit.changing import changing_folder
from tests.sample import cut

pytestmark = [pytest.mark.services, pytest.mark.timeout(3600)]

PROTOCOLS = ("2pc", "wal", "idempotent")
CASES = {
    "protocols": (list(permutations(PROTOCOLS, 2)), True),
    "options": (
        [pair for each in PROTOCOLS for pair in permutations((each, f"{each} otherwise"), 2)],
        True,
    ),
    "places": (
        [pair for each in PROTOCOLS for pair in permutations((each, f"{each} elsewhere"), 2)],
        False,
    ),
}
AT_ONCE, SAMPLED = 4, 3


@sample.cases(2)
@pytest.mark.parametrize("name", CASES)
def test_a_change_between_two_runs_loses_and_doubles_nothing(
    store: S3Service, given: Mapping[str, str], prefix: str, name: str
) -> None:
    def sampled(found: Sequence[Change]) -> list[Change]:
        return cut(found, SAMPLED, f"S3 {name}")

    pairs, finds = CASES[name]
    opener = partial(changing_folder, f"s3://{store.bucket}/{prefix}", given)
    done = check_changes(opener, pairs, choose=sampled, finds=finds, at_once=AT_ONCE)
    print(name, done, sep=": ")


@pytest.mark.campaign
@pytest.mark.parametrize("name", CASES)
def test_no_change_between_two_runs_loses_or_doubles_a_row(
    store: S3Service, given: Mapping[str, str], prefix: str, name: str
) -> None:
    pairs, finds = CASES[name]
    opener = partial(changing_folder, f"s3://{store.bucket}/{prefix}", given)
    done = check_changes(opener, pairs, finds=finds, at_once=AT_ONCE)
    print(name, done, *(f"{change}: {said}" for change, said in done.refused.items()), sep="\n")
    assert bool(done.refused) == (name == "places")


KILLS = [(*pair, point) for pair in permutations(PROTOCOLS, 2) for point in CrashPoint]


def test_a_change_of_protocol_between_processes_that_are_killed_loses_and_doubles_nothing(
    store: S3Service, given: Mapping[str, str], prefix: str
) -> None:
    with ForkServer() as fork_server:
        killed = check_changed_crashes(
            partial(changing_folder, f"s3://{store.bucket}/{prefix}", given),
            fork_server,
            cut(KILLS, 1, "S3 kills"),
        )
    print(killed)


@pytest.mark.campaign
@pytest.mark.parametrize("pair", list(permutations(PROTOCOLS, 2)), ids="-".join)
def test_no_change_of_protocol_between_processes_that_are_killed_loses_or_doubles_a_row(
    store: S3Service, given: Mapping[str, str], prefix: str, pair: tuple[str, str]
) -> None:
    with ForkServer() as fork_server:
        kills = [kill for kill in KILLS if kill[:2] == pair]
        print(
            pair,
            check_changed_crashes(
                partial(changing_folder, f"s3://{store.bucket}/{prefix}", given), fork_server, kills
            ),
        )
