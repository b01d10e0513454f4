"""The core with one rule of a start broken, and the checks that find it.

Whose register, checkpoint, target or epoch it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from abs_core import consent, protocol
from abs_core.births import rules as births
from abs_core.births import targets
from abs_core.certificate import Origin
from abs_core.coordinator._looking import Lookout
from abs_core.coordinator.cell import Rule
from abs_core.coordinator.certifier import Certifier
from abs_core.errors import TargetError
from abs_core.lookback import LookedBack
from abs_core.model import Decision, JobState, Shown
from abs_core.protocol import RunIdentity, Verdict
from abs_testing.fakes import FakeSink
from abs_testing.fakes import sink as fake_sink
from tests.planted import Bug, Plant

DELETED = "another_lineage_from_the_place_of_a_checkpoint_is_refused_unless_the_target_is_empty"


def mints_what_is_lost(plant: Plant) -> None:
    """Not the sink's: what 315a560 did. Whatever the checkpoint tells of, the register is believed."""

    def start(
        state: JobState | None, who: RunIdentity, new: str, origin: Origin, epoch: int, place: str
    ) -> Verdict:
        return protocol.start(state, who, new)

    plant(births, "start", start)


def consents_for_whoever_asks(plant: Plant) -> None:
    """As every release did: the token names what it overrides, and not for whom, nor where."""
    right = consent.to_adopt
    anybody = RunIdentity("job", "", "", "")
    plant(consent, "to_adopt", lambda state, who, epoch: right(state, anybody, 0))


def certifies_nothing(plant: Plant) -> None:
    plant(Certifier, "certify", lambda self, state, epoch, *, gaps_allowed: None)


def takes_a_certificate_that_cannot_be_written_for_a_warning(plant: Plant) -> None:
    plant(births, "uncertified", lambda *given: None)


def notes_no_epoch(plant: Plant) -> None:
    """The certificate is written once per run, although the engine may leave epochs out."""
    plant(Certifier, "note", lambda self, state, epoch: None)


def goes_on_where_an_epoch_cannot_be_noted(plant: Plant) -> None:
    right = Certifier.note

    def note(self: Certifier, state: JobState, epoch: int) -> None:
        with suppress(TargetError):
            right(self, state, epoch)

    plant(Certifier, "note", note)


def asks_nobody_whose_checkpoint_it_was(plant: Plant) -> None:
    plant(births, "begun_elsewhere", lambda others, who, epoch: None)


def takes_its_target_for_empty(plant: Plant) -> None:
    plant(FakeSink, "is_empty", lambda self: True)


def never_finds_its_target_empty(plant: Plant) -> None:
    plant(FakeSink, "is_empty", lambda self: False)


def tells_epochs_by_their_count(plant: Plant) -> None:
    """As every release did before digests of rows."""
    right = protocol.same_epoch
    plant(protocol, "same_epoch", lambda s, e, fingerprint, rows: right(s, e, None, rows))


def looks_back_at_nothing(plant: Plant) -> None:
    """As every release did before the record of the last epochs."""
    plant(Lookout, "at_start", lambda self, before, rule, epoch: ())


def records_the_newest_epoch_only_once(plant: Plant) -> None:
    """The mark of a job's first epoch is kept for all that follow."""
    right = protocol.finish

    def finish(state: JobState, decision: Decision, shown: Sequence[Shown] = ()) -> Verdict:
        return right(state, decision, shown if state.frontier is None else ())

    plant(protocol, "finish", finish)


def forgets_no_gone_epoch_by_consent(plant: Plant) -> None:
    plant(targets, "consented", lambda before, verdict, looks: verdict)


def raises_the_generation_before_it_looks(plant: Plant) -> None:
    """A start that is refused has taken the job over, and swept."""
    right = Lookout.at_start

    def look_back(
        self: Lookout, before: JobState | None, rule: Rule, epoch: int
    ) -> Sequence[LookedBack]:
        self._cell.change(rule)
        return right(self, before, rule, epoch)

    plant(Lookout, "at_start", look_back)


def counts_the_handles_of_all_sinks_together(plant: Plant) -> None:
    """As a mark of an epoch that does not tell the sinks of one target apart."""
    plant(fake_sink, "number_of", lambda handle: 0)


WENT_BACK = "a_target_that_went_back_is_told_at_a_start"
OF_TWO = "of_two_sinks_in_one_target_that_went_back_the_one_that_lost_rows_is_told"

PLANTED: dict[Bug, tuple[str, str, set[str]]] = {
    mints_what_is_lost: (
        "2pc",
        "append",
        {
            "a_register_that_is_not_there_is_not_minted_beside_a_certificate",
            "a_register_that_is_another_one_or_went_back_is_refused",
            "a_checkpoint_of_another_job_is_refused",
        },
    ),
    consents_for_whoever_asks: (
        "2pc",
        "append",
        {"a_lineage_may_be_adopted_by_consent_of_its_own"},
    ),
    counts_the_handles_of_all_sinks_together: ("2pc", "append", {OF_TWO}),
    certifies_nothing: (
        "wal",
        "append",
        {"the_certificate_is_written_before_the_first_decision"},
    ),
    takes_a_certificate_that_cannot_be_written_for_a_warning: (
        "2pc",
        "append",
        {"a_register_that_may_be_lost_decides_nothing_where_no_certificate_can_be_written"},
    ),
    notes_no_epoch: (
        "idempotent",  # of the others the target itself tells
        "upsert",
        {"a_register_that_went_back_is_refused_where_epochs_may_be_left_out"},
    ),
    goes_on_where_an_epoch_cannot_be_noted: (
        "2pc",
        "append",
        {"an_epoch_that_cannot_be_noted_ends_the_run_where_epochs_may_be_left_out"},
    ),
    looks_back_at_nothing: (
        "2pc",
        "append",
        {WENT_BACK, "a_register_that_went_back_with_its_checkpoint_is_told_by_the_target"},
    ),
    records_the_newest_epoch_only_once: ("2pc", "append", {WENT_BACK}),
    forgets_no_gone_epoch_by_consent: ("2pc", "append", {WENT_BACK}),
    raises_the_generation_before_it_looks: ("2pc", "append", {WENT_BACK}),
    asks_nobody_whose_checkpoint_it_was: ("2pc", "append", {DELETED}),
    takes_its_target_for_empty: ("wal", "append", {DELETED}),
    never_finds_its_target_empty: ("2pc", "append", {DELETED}),
    tells_epochs_by_their_count: (
        "2pc",
        "append",
        {"other_rows_of_the_same_number_are_told_by_their_digest"},
    ),
}
"""Each bug: protocol and write of the sink that has it, and the rules whose checks find it."""
