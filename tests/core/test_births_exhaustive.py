"""A register that vanishes or goes back at any step doubles no epoch; wrong ways are found to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abs_core import consent, protocol
from abs_core.births import rules as births
from abs_core.certificate import Certificate, Origin
from abs_core.model import JobState
from abs_core.protocol import Changed, RunIdentity, Verdict
from tests.model.exhaustive import Violated
from tests.model.exhaustive.loss import Ways
from tests.model.exhaustive.losses import explore_losses
from tests.planted import planted


def _mint_again(
    state: JobState | None, who: RunIdentity, register: str, origin: Origin, epoch: int, place: str
) -> Verdict:
    """What is not there, or went back, is taken as it is."""
    return protocol.start(state, who, register)


def _without_deciding(state: JobState, place: str, deciding: int) -> Certificate:
    return replace(births.certify(state, place, deciding), deciding=10**9)


def _never_mind(
    state: JobState, who: RunIdentity, origin: Origin, epoch: int, place: str, why: str
) -> None:
    """That a certificate cannot be written is a warning."""


def _without_the_map(
    state: JobState | None, who: RunIdentity, register: str, origin: Origin, epoch: int, place: str
) -> Verdict:
    """A job that begins again by consent has no sinks yet."""
    verdict = births.start(state, who, register, origin, epoch, place)
    if state is None and who.adopt and isinstance(verdict, Changed):
        return Changed(replace(verdict.state, sinks=()))
    return verdict


def _for_ever(
    state: JobState | None, who: RunIdentity, register: str, origin: Origin, epoch: int, place: str
) -> Verdict:
    """A token that was valid once stays so."""
    if who.adopt:
        who = replace(who, adopt=consent.to_go_on_without(origin, who, epoch))
    return births.start(state, who, register, origin, epoch, place)


def _for_each_epoch(
    state: JobState | None, who: RunIdentity, register: str, origin: Origin, epoch: int, place: str
) -> Verdict:
    """A run that began by consent needs it anew for its next epoch."""
    other = replace(who, run="another")
    begun = state is not None and births.why_lost(state, other, origin, epoch) is not None
    if begun and who.adopt != consent.to_go_on_without(origin, who, epoch):
        return births.start(state, other, register, origin, epoch, place)  # is refused
    return births.start(state, who, register, origin, epoch, place)


WRONG = {
    "mint again": Ways(start=_mint_again),
    "certificate after the first decision": Ways(first=False),
    "certificate that does not name the epoch about to be decided": Ways(certify=_without_deciding),
    "a certificate that cannot be written is a warning": Ways(full=True, uncertified=_never_mind),
    "one that cannot be written anew is a warning": Ways(refusals=3, uncertified=_never_mind),
    "certificate once a run, where epochs may be left out": Ways(gaps=True, tells=False),
    "an epoch that cannot be noted, where some may be left out, is a warning": Ways(
        gaps=True, refusals=2, stops=False
    ),
}

LOST = r"is visible 2 times|nothing was lost|and not visible"

WRONG_BY_CONSENT = {
    "consent without the map of sinks": Ways(start=_without_the_map, consents=1, several=True),
    "consent for each epoch of a run": Ways(start=_for_each_epoch, consents=1, gaps=True),
    "consent that holds for ever": Ways(start=_for_ever, consents=1, losses=2, runs=4, epochs=2),
}


def test_a_register_that_is_lost_at_any_step_doubles_no_epoch() -> None:
    states = explore_losses(Ways())
    print(states)
    assert states > 1000, "the model does too little to prove anything"


@pytest.mark.parametrize("ways", [Ways(refusals=3), Ways(full=True)])
def test_nor_where_the_certificate_cannot_be_written_at_times_or_ever(ways: Ways) -> None:
    assert explore_losses(ways) > 1000


@pytest.mark.parametrize(
    "ways",
    [Ways(refusals=3, first_too=True), Ways(unheard=2, runs=2), Ways(unheard=1, gaps=True, runs=2)],
)
def test_nor_where_every_write_fails_some_times_and_then_works(ways: Ways) -> None:
    assert explore_losses(ways) > 1000


@pytest.mark.parametrize("first_too", [False, True])
def test_a_certificate_that_failed_and_counts_as_written_is_found(first_too: bool) -> None:
    with pytest.raises(Violated, match="has not tried to be certified") as found:
        explore_losses(Ways(refusals=1, first_too=first_too, tries_again=False))
    print(found.value)


def test_the_loss_that_nothing_can_tell_is_seen_by_the_model() -> None:
    """It is left out, see ``losses``: a job that was never certified loses its whole register."""
    with pytest.raises(Violated, match="is visible 2 times") as found:
        explore_losses(Ways(refusals=1, first_too=True, unseen=True, epochs=2))
    before, _, after = str(found.value).partition("the register ")
    assert "cannot write the certificate" in before
    assert "writes the certificate" not in before
    assert "writes the certificate" in after


@pytest.mark.parametrize("refusals", [0, 2])
def test_nor_where_the_engine_leaves_epochs_out(refusals: int) -> None:
    assert explore_losses(Ways(gaps=True, refusals=refusals)) > 1000


@pytest.mark.parametrize(
    "ways", [Ways(losses=0, runs=4), Ways(losses=0, full=True), Ways(losses=0, gaps=True)]
)
def test_nobody_is_refused_where_nothing_is_lost(ways: Ways) -> None:
    assert explore_losses(ways) > 100


@pytest.mark.parametrize(
    "ways",
    [
        Ways(consents=1, several=True),
        Ways(consents=1, gaps=True),
        Ways(consents=1, full=True),
        Ways(consents=2, restores=True),
        Ways(consents=1, refusals=2),
        Ways(consents=1, losses=2, runs=4, epochs=2),
    ],
)
def test_nor_where_the_operator_consents_and_then_nobody_is_refused(ways: Ways) -> None:
    assert explore_losses(ways) > 1000


@pytest.mark.campaign
@pytest.mark.parametrize(
    "ways",
    [
        Ways(losses=2),
        Ways(runs=4),
        Ways(epochs=4),
        Ways(losses=2, refusals=4),
        Ways(losses=2, full=True),
        Ways(losses=2, refusals=3, first_too=True),
        Ways(runs=4, losses=2, refusals=2, first_too=True),
        Ways(gaps=True, refusals=3, first_too=True),
        Ways(gaps=True, epochs=4, refusals=1),
        Ways(gaps=True, losses=2, refusals=2),
        Ways(consents=2, losses=2, runs=5, epochs=2, several=True),
        Ways(consents=2, losses=2, runs=4, gaps=True),
        Ways(consents=1, losses=2, runs=4, refusals=2),
    ],
)
def test_larger_explorations(ways: Ways) -> None:
    print(explore_losses(ways, limit=5_000_000))


@pytest.mark.parametrize("name", WRONG)
def test_the_exploration_finds(name: str) -> None:
    with pytest.raises(Violated, match="is visible 2 times") as found:
        explore_losses(WRONG[name])
    print(found.value)


@pytest.mark.parametrize("name", WRONG_BY_CONSENT)
def test_the_exploration_finds_wrong_ways_to_consent(name: str) -> None:
    with pytest.raises(Violated, match=LOST) as found:
        explore_losses(WRONG_BY_CONSENT[name])
    print(found.value)


def test_the_exploration_finds_one_consent_whether_or_not_epochs_are_gone() -> None:
    """As every release before 0.3 gave it."""
    with planted((births, "_left_out", lambda *_: None), by=Violated, match=LOST) as found:
        explore_losses(Ways(consents=1, restores=True))
    print(found.value)
