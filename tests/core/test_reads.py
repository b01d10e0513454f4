"""Each read of a start and of an epoch fails once, on the fakes: it is never taken for absence."""

from __future__ import annotations

from functools import partial
from itertools import chain, repeat

import pytest

from abs_core.certificate import Origin
from abs_core.contracts import Stored
from abs_core.errors import UnavailableError
from abs_testing import Opener, by_calls, check_reads
from abs_testing.behind import CertificatesBehind, StoreBehind
from abs_testing.check_reads import STARTS
from tests.kit.asking import Asking
from tests.kit.fake_harness import open_fake
from tests.planted import Bug, Plant, planted

FAKES: dict[str, Opener] = {
    "2pc": partial(open_fake, "2pc", "append"),
    "wal": partial(open_fake, "wal", "append"),
    "idempotent": partial(open_fake, "idempotent", "upsert"),
}


@pytest.mark.parametrize("fake", FAKES)
@pytest.mark.parametrize("start", STARTS)
def test_no_read_that_fails_is_taken_for_absence(start: str, fake: str) -> None:
    print(start, fake, check_reads(by_calls(FAKES[fake]), start), sep=": ")


def takes_a_register_for_none(plant: Plant) -> None:
    right = StoreBehind.load

    def load(self: StoreBehind, job: str) -> Stored | None:
        try:
            return right(self, job)
        except UnavailableError:
            return None

    plant(StoreBehind, "load", load)


def takes_a_certificate_for_none(plant: Plant) -> None:
    """As the checkpoint did, where the first read of a process failed."""
    right = CertificatesBehind.read

    def read(self: CertificatesBehind) -> Origin:
        try:
            return right(self)
        except UnavailableError:
            return Origin(readable=False)

    plant(CertificatesBehind, "read", read)


BUGS: dict[Bug, tuple[str, str]] = {
    takes_a_register_for_none: ("a start that goes on", r"load \(call .* fails once"),
    takes_a_certificate_for_none: (
        "a start whose register is gone",
        r"certificate \(call .* a register was minted",
    ),
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_check_reads_finds_a_job_that(bug: Bug) -> None:
    start, found = BUGS[bug]
    with planted(bug, match=found) as failed:
        check_reads(by_calls(FAKES["2pc"]), start)
    print(failed.value)


def test_it_finds_a_bug_whose_read_was_behind_others_that_come_less_often_later() -> None:
    start, found = BUGS[takes_a_certificate_for_none]
    asks = chain([20], repeat(0))
    opener = by_calls(FAKES["2pc"], lambda: Asking(asks, "inspect"))
    with planted(takes_a_certificate_for_none, match=found):
        check_reads(opener, start)
