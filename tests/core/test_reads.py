"""Each read of a start and of an epoch fails once, on the fakes: it is never taken for absence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from abs_core.certificate import Origin
from abs_core.contracts import Stored
from abs_core.errors import UnavailableError
from abs_testing import Opener, by_calls, check_reads
from abs_testing.behind import CertificatesBehind, StoreBehind
from abs_testing.calls import ContractCalls, Loss
from abs_testing.check_reads import STARTS
from abs_testing.harness import Harness
from tests.kit.fake_harness import open_fake

FAKES: dict[str, Opener] = {
    "2pc": partial(open_fake, "2pc", "append"),
    "wal": partial(open_fake, "wal", "append"),
    "idempotent": partial(open_fake, "idempotent", "upsert"),
}


@pytest.mark.parametrize("fake", FAKES)
@pytest.mark.parametrize("start", STARTS)
def test_no_read_that_fails_is_taken_for_absence(start: str, fake: str) -> None:
    print(start, fake, check_reads(by_calls(FAKES[fake]), start), sep=": ")


def takes_a_register_for_none(patch: pytest.MonkeyPatch) -> None:
    right = StoreBehind.load

    def load(self: StoreBehind, job: str) -> Stored | None:
        try:
            return right(self, job)
        except UnavailableError:
            return None

    patch.setattr(StoreBehind, "load", load)


def takes_a_certificate_for_none(patch: pytest.MonkeyPatch) -> None:
    """As the checkpoint did, where the first read of a process failed."""
    right = CertificatesBehind.read

    def read(self: CertificatesBehind) -> Origin:
        try:
            return right(self)
        except UnavailableError:
            return Origin(readable=False)

    patch.setattr(CertificatesBehind, "read", read)


Bug = Callable[[pytest.MonkeyPatch], None]
BUGS: dict[Bug, tuple[str, str]] = {
    takes_a_register_for_none: ("a start that goes on", r"load \(call .* fails once"),
    takes_a_certificate_for_none: (
        "a start whose register is gone",
        r"certificate \(call .* a register was minted",
    ),
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_check_reads_finds_a_job_that(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    start, found = BUGS[bug]
    with pytest.raises(AssertionError, match=found) as failed:
        check_reads(by_calls(FAKES["2pc"]), start)
    print(failed.value)


def test_it_finds_a_bug_whose_read_was_behind_others_that_come_less_often_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    takes_a_certificate_for_none(monkeypatch)
    start, found = BUGS[takes_a_certificate_for_none]
    asked_more = [True]

    @contextmanager
    def opened() -> Iterator[tuple[Harness, ContractCalls]]:
        with by_calls(FAKES["2pc"])() as (harness, calls):
            right = calls.arm

            def arm(number: int, loss: Loss | None, name: str = "") -> None:
                right(number, loss, name)
                for _ in range(20 * asked_more.pop() if asked_more else 0):
                    calls.read("inspect", lambda: None)

            monkeypatch.setattr(calls, "arm", arm)
            yield harness, calls

    with pytest.raises(AssertionError, match=found):
        check_reads(opened, start)
