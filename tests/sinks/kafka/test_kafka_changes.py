"""Options that change between two runs of a job, on a real broker."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import permutations

import pytest

from abs_core.crash import CrashPoint
from abs_services import KafkaService
from abs_sinks.kafka import sink, wal
from abs_testing import ForkServer, check_changed_crashes
from abs_testing.check_changes import Change, check_changes
from tests import sample
from tests.kit.changing import changing_topic
from tests.planted import Bug, Plant, planted
from tests.sample import cut

pytestmark = [pytest.mark.services, pytest.mark.timeout(3600)]

PROTOCOLS = ("2pc", "wal", "idempotent")


def both_ways(*pairs: tuple[str, str]) -> list[tuple[str, str]]:
    return [pair for one, other in pairs for pair in ((one, other), (other, one))]


OPTIONS = both_ways(
    *((each, f"{each} librdkafka") for each in PROTOCOLS),
    ("2pc", "2pc otherwise"),
)
PLACES = both_ways(
    *((each, f"{each} elsewhere") for each in PROTOCOLS), ("wal", "wal in another log")
)
FROM_WAL = [("wal", "2pc"), ("wal", "idempotent")]
CASES = {
    "protocols": ([p for p in permutations(PROTOCOLS, 2) if p not in FROM_WAL], True, True),
    # Without the option wal nobody knows where segments lie: they stay until the job goes back.
    "protocols, from wal": (FROM_WAL, False, True),
    "options": (OPTIONS, True, True),
    "places": (PLACES, False, True),
    "protocols, register elsewhere": (both_ways(("2pc", "wal")), False, False),
    "places, register elsewhere": (
        both_ways(("wal", "wal elsewhere"), ("wal", "wal in another log")),
        False,
        False,
    ),
}
AT_ONCE, SAMPLED = 3, 2


@sample.cases(2)
@pytest.mark.parametrize("name", sample.members(CASES, 3, "Kafka, changes"))
def test_a_change_between_two_runs_loses_and_doubles_nothing(
    kafka: KafkaService, name: str
) -> None:
    def sampled(found: Sequence[Change]) -> list[Change]:
        return cut(found, SAMPLED, f"Kafka {name}")

    kafka.start()
    pairs, finds, own_register = CASES[name]
    opener = partial(changing_topic, kafka.bootstrap, own_register=own_register)
    done = check_changes(opener, pairs, choose=sampled, finds=finds, at_once=AT_ONCE)
    print(name, done, sep=": ")


@pytest.mark.campaign
@pytest.mark.parametrize("name", CASES)
def test_no_change_between_two_runs_loses_or_doubles_a_row(kafka: KafkaService, name: str) -> None:
    kafka.start()
    pairs, finds, own_register = CASES[name]
    opener = partial(changing_topic, kafka.bootstrap, own_register=own_register)
    done = check_changes(opener, pairs, finds=finds, at_once=AT_ONCE)
    print(name, done, *(f"{change}: {said}" for change, said in done.refused.items()), sep="\n")


def gives_up_nothing(plant: Plant) -> None:
    """As before 8d499ec: what a job sent under ``idempotent`` holds readers up after the change."""
    plant(sink, "left_behind", lambda options, state: None)


def believes_any_ledger(plant: Plant) -> None:
    """As before 700ed1f: an empty ledger in another topic says that nothing was sent."""
    plant(wal, "without_proof", lambda options, committables: [])


BUGS: dict[Bug, tuple[tuple[str, str], str, bool, str]] = {
    gives_up_nothing: (("idempotent", "2pc"), "pre-committed", True, "rows are missing"),
    believes_any_ledger: (
        ("wal", "wal elsewhere"),
        "with all handles committed",
        False,
        "nothing was lost",
    ),
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_check_changes_finds_a_sink_that(bug: Bug, kafka: KafkaService) -> None:
    kafka.start()
    pair, moment, own_register, found = BUGS[bug]

    def there(changes: Sequence[Change]) -> list[Change]:
        return [change for change in changes if change.moment == moment]

    opener = partial(changing_topic, kafka.bootstrap, own_register=own_register)
    with planted(bug, match=found) as failed:
        check_changes(opener, [pair], choose=there, finds=False)
    print(failed.value)


# A job with committed epochs may not go over to `idempotent`: its side topic would say nothing of them.
KILLS = [(*pair, point) for pair in permutations(PROTOCOLS, 2) for point in CrashPoint]


def test_a_change_of_protocol_between_processes_that_are_killed_loses_and_doubles_nothing(
    kafka: KafkaService,
) -> None:
    kafka.start()
    kills = cut(KILLS, 1, "Kafka kills")
    finds = all("wal" not in kill[:2] for kill in kills)
    with ForkServer() as fork_server:
        opener = partial(changing_topic, kafka.bootstrap)
        print(
            kills, check_changed_crashes(opener, fork_server, kills, finds=finds, may_refuse=True)
        )


@pytest.mark.campaign
@pytest.mark.parametrize("pair", list(permutations(PROTOCOLS, 2)), ids="-".join)
def test_no_change_of_protocol_between_processes_that_are_killed_loses_or_doubles_a_row(
    kafka: KafkaService, pair: tuple[str, str]
) -> None:
    kafka.start()
    with ForkServer() as fork_server:
        kills = [kill for kill in KILLS if kill[:2] == pair]
        opener = partial(changing_topic, kafka.bootstrap)
        print(
            pair,
            check_changed_crashes(
                opener, fork_server, kills, finds="wal" not in pair, may_refuse=True
            ),
        )
