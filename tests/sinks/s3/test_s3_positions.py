"""Every request of a job, by its position, is dropped, answered in vain, delayed or doubled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from queue import SimpleQueue

import pytest

from abs_core.contracts import Conflict, Version
from abs_core.model import Committable, JobState
from abs_services import S3Service
from abs_sinks.s3 import S3Sink
from abs_sinks.s3.idempotent import IdempotentCommitter
from abs_sinks.s3.manifests import Manifests
from abs_testing import (
    SCHEMA,
    Harness,
    Position,
    PositionOpener,
    Repeat,
    RepeatOpener,
    by_calls,
    check_positions,
    check_reads,
    check_repeats,
)
from abs_testing.calls import Loss
from abs_testing.check_reads import STARTS
from tests import sample
from tests.sample import cut
from tests.sinks.s3.conftest import FolderOpener
from tests.sinks.s3.proxy import Proxy, ProxyCalls, by_proxy, running

pytestmark = pytest.mark.services

AT_ONCE = 4
"""Jobs at the same time; each has a proxy for itself."""

SAMPLED = 4
"""Positions of a protocol that the everyday tests try."""


@pytest.fixture(scope="module")
def proxies(store: S3Service) -> Iterator[SimpleQueue[Proxy]]:
    """Those that no job uses now."""
    free: SimpleQueue[Proxy] = SimpleQueue()
    with ExitStack() as held:
        for _ in range(AT_ONCE):
            free.put(held.enter_context(running(store.endpoint)))
        yield free


@pytest.fixture
def through(opener: FolderOpener, proxies: SimpleQueue[Proxy]) -> RepeatOpener:
    """Opens a folder whose sinks go through a proxy; it is looked at without it."""

    @contextmanager
    def opened() -> Iterator[tuple[Harness, ProxyCalls]]:
        proxy = proxies.get()
        try:
            with opener() as harness:
                options = by_proxy(proxy, harness.options, timeout=20.0)
                harness.new_sink = partial(S3Sink, options, SCHEMA)
                yield harness, ProxyCalls(proxy)
        finally:
            proxy.plan = None
            proxies.put(proxy)

    return opened


@sample.cases(1)
def test_a_request_that_is_lost_at_any_position_loses_and_doubles_nothing(
    through: PositionOpener, protocol: str
) -> None:
    def sampled(found: Sequence[Position]) -> list[Position]:
        return cut(found, SAMPLED, f"S3 {protocol}, by position")

    print(protocol, check_positions(through, choose=sampled, at_once=AT_ONCE), sep=": ")


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("loss", Loss)
def test_no_request_at_any_position_can_be_lost(
    through: PositionOpener, protocol: str, loss: Loss
) -> None:
    def lost_so(found: Sequence[Position]) -> list[Position]:
        return [position for position in found if position.loss is loss]

    tried = check_positions(through, choose=lost_so, at_once=AT_ONCE)
    print(protocol, loss, tried, sep=": ")
    assert not tried.waited


@sample.cases(1)
def test_a_request_that_comes_again_late_cuts_nothing(through: RepeatOpener, protocol: str) -> None:
    def sampled(found: Sequence[Repeat]) -> list[Repeat]:
        return cut(found, SAMPLED, f"S3 {protocol}, repeats")

    print(protocol, *check_repeats(through, choose=sampled, at_once=AT_ONCE), sep=": ")


@sample.cases(1)
def test_no_read_that_fails_is_taken_for_absence(opener: FolderOpener, protocol: str) -> None:
    for start in cut(STARTS, 1, f"S3 {protocol}, reads"):
        print(protocol, start, check_reads(by_calls(opener), start), sep=": ")


@pytest.mark.campaign
@pytest.mark.parametrize("start", STARTS)
def test_no_read_of_any_start_is_taken_for_absence(opener: FolderOpener, start: str) -> None:
    check_reads(by_calls(opener), start)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_no_request_that_comes_again_late_cuts_anything(
    through: RepeatOpener, protocol: str
) -> None:
    print(protocol, len(check_repeats(through, at_once=AT_ONCE)), sep=": ")


def takes_a_conflict_for_another_winner(patch: pytest.MonkeyPatch) -> None:
    """The register's put came twice and won; what it lists is deleted at the second answer."""
    right = IdempotentCommitter.co_commit

    def co_commit(
        self: IdempotentCommitter,
        committables: Sequence[Committable],
        expected: Version | None,
        state: JobState,
    ) -> Version | Conflict:
        manifests = Manifests(self._options, state.job)
        before = manifests.all()
        answer = right(self, committables, expected, state)
        if isinstance(answer, Conflict):
            mine = [name for name in manifests.all() if name not in before]
            manifests._objects.delete([f"{manifests._folder}{name}" for name in mine])
        return answer

    patch.setattr(IdempotentCommitter, "co_commit", co_commit)


def first_epochs_decision(found: Sequence[Position]) -> list[Position]:
    """The put that makes an epoch's manifest count: the third one that is on a condition."""
    return [p for p in found if p.name == "PutIf #3" and p.loss is Loss.DOUBLE]


@pytest.mark.parametrize("protocol", ["idempotent"], indirect=True)
def test_a_doubled_put_of_the_register_keeps_the_manifest_that_it_lists(
    through: PositionOpener, protocol: str
) -> None:
    (tried,) = check_positions(through, choose=first_epochs_decision).tried
    assert tried.loss is Loss.DOUBLE


@pytest.mark.parametrize("protocol", ["idempotent"], indirect=True)
def test_a_manifest_that_goes_by_a_conflict_is_found_at_the_doubled_put(
    through: PositionOpener, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abs_sinks.s3.committed.LOOK_SECONDS", 0.1)
    takes_a_conflict_for_another_winner(monkeypatch)
    with pytest.raises(AssertionError, match=r"PutIf #3 doubled: .*manifest.* no longer exists"):
        check_positions(through, choose=first_epochs_decision)
