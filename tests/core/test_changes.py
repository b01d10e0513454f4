"""Options that change between two runs of a job, on the fakes; and what breaks it is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import permutations

import pytest

from abs_core.contracts import Committer
from abs_core.model import Committable, HandleName, InDoubt, Outcome
from abs_core.routing import NothingToCommit
from abs_testing.check_changes import Change, check_changes
from abs_testing.fakes import FakeSink
from abs_testing.fakes.sink import HandleCommitter, TransactionCommitter
from tests.core.planted_start_bugs import mints_what_is_lost
from tests.kit.fake_harness import STATES, WAYS, open_changing_fake
from tests.planted import Bug, Plant, planted
from tests.sample import cut

NAMES = {way: " ".join(way) for way in WAYS}
PROTOCOLS = [
    (f"{NAMES[a]} here", f"{NAMES[b]} here")
    for a, b in permutations(WAYS, 2)
    # Rows of an epoch that is not decided are there: only upserts may write them again.
    if a[0] != "idempotent" or b[1] == "upsert"
]
PLACES = [
    (f"{name} {a}", f"{name} {b}") for name in NAMES.values() for a, b in permutations(STATES)
]
SAMPLED = 12


CASES = {
    "protocol": (PROTOCOLS, True),
    "protocol, register elsewhere": ([p for p in PROTOCOLS if "idem" not in "".join(p)], False),
    # Under a register elsewhere the fake does not say where its proofs lie: that is a bug below.
    "place": (PLACES, True),
}


@pytest.mark.parametrize("name", CASES)
def test_a_change_between_two_runs_loses_and_doubles_nothing(name: str) -> None:
    def sampled(found: Sequence[Change]) -> list[Change]:
        return cut(found, SAMPLED, f"changes {name}")

    pairs, own_register = CASES[name]
    opener = partial(open_changing_fake, own_register=own_register)
    done = check_changes(opener, pairs, choose=sampled, finds=name != "place")
    print(done)
    assert name == "place" or not done.refused


@pytest.mark.campaign
@pytest.mark.parametrize("name", CASES)
def test_no_change_between_two_runs_loses_or_doubles_a_row(name: str) -> None:
    pairs, own_register = CASES[name]
    opener = partial(open_changing_fake, own_register=own_register)
    done = check_changes(opener, pairs, finds=name != "place")
    print(*(f"{change}: {said}" for change, said in done.refused.items()), sep="\n")
    assert bool(done.refused) == (name == "place")


def takes_what_is_not_there_for_committed(plant: Plant) -> None:
    """Its proof lies elsewhere."""
    right = HandleCommitter.commit

    def commit(self: HandleCommitter, given: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        right(self, given)
        return {committable.handle: Outcome.COMMITTED for committable in given}

    plant(HandleCommitter, "commit", commit)


def tells_of_a_loss_where_its_proof_lies_elsewhere(plant: Plant) -> None:
    """As the fake does, and PostgreSQL's did: who believes the error writes the rows again."""


def _by_one(sink: FakeSink) -> Committer:
    keyed = sink.guarantee().write == "upsert"
    protocol = sink.guarantee().protocol
    if protocol == "2pc":
        return HandleCommitter(sink._target, keyed=keyed)
    return (
        TransactionCommitter(sink._target, keyed=keyed) if protocol == "wal" else NothingToCommit()
    )


def knows_its_present_protocol_only(plant: Plant) -> None:
    """What is decided under another protocol is the present one's to commit."""
    plant(FakeSink, "committer", _by_one)


def sweeps_its_present_protocol_only(plant: Plant) -> None:
    """What was pre-committed under another one stays for ever."""
    right = FakeSink.committer

    def committer(self: FakeSink) -> Committer:
        made = right(self)
        own = _by_one(self)

        def in_doubt(job: str | None) -> Sequence[InDoubt]:
            return own.in_doubt(job)

        plant(made, "in_doubt", in_doubt)
        return made

    plant(FakeSink, "committer", committer)


BUGS: dict[Bug, tuple[tuple[str, str], str, bool, str]] = {
    mints_what_is_lost: (
        ("2pc append here", "2pc append there"),
        "finished, and not yet forgotten",
        True,
        "5 are there that must not be",
    ),
    takes_what_is_not_there_for_committed: (
        ("2pc append here", "2pc append there"),
        "decided",
        False,
        "no longer has the 5 rows",
    ),
    tells_of_a_loss_where_its_proof_lies_elsewhere: (
        ("2pc append here", "2pc append there"),
        "with all handles committed",
        False,
        "nothing was lost",
    ),
    knows_its_present_protocol_only: (
        ("2pc append here", "idempotent upsert here"),
        "decided",
        True,
        "5 rows are missing",
    ),
    sweeps_its_present_protocol_only: (
        ("2pc append here", "idempotent upsert here"),
        "pre-committed",
        True,
        "left behind",
    ),
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_check_changes_finds_a_job_that(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, moment, own_register, found = BUGS[bug]
    monkeypatch.setattr("abs_testing.case.PATIENCE", 0.05)

    def there(changes: Sequence[Change]) -> list[Change]:
        return [change for change in changes if change.moment == moment]

    opener = partial(open_changing_fake, own_register=own_register)
    with planted(bug, match=found) as failed:
        check_changes(opener, [pair], choose=there)
    print(failed.value)
