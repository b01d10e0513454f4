"""Every request of a job, by its position, is dropped, answered in vain, delayed or doubled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from queue import SimpleQueue

import pytest

from abs_core.contracts import Conflict, Version
from abs_core.model import Committable, JobState
from abs_core.testing import SCHEMA, Calls, Harness, Position, PositionOpener, check_positions
from abs_core.testing.calls import Loss
from abs_services import S3Service
from abs_sinks.s3 import S3Sink
from abs_sinks.s3.idempotent import IdempotentCommitter
from abs_sinks.s3.manifests import Manifests
from tests.daily import cut
from tests.sinks.s3.conftest import FolderOpener
from tests.sinks.s3.proxy import Proxy, ProxyCalls, running

pytestmark = pytest.mark.services

AT_ONCE = 4
"""Jobs at the same time; each has a proxy for itself."""

EACH_DAY = 4
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
def through(opener: FolderOpener, proxies: SimpleQueue[Proxy]) -> PositionOpener:
    """Opens a folder whose sinks go through a proxy; it is looked at without it."""

    @contextmanager
    def opened() -> Iterator[tuple[Harness, Calls]]:
        proxy = proxies.get()
        try:
            with opener() as harness:
                options = replace(harness.options, endpoint=proxy.endpoint, timeout=20.0)
                harness.new_sink = partial(S3Sink, options, SCHEMA)
                yield harness, ProxyCalls(proxy)
        finally:
            proxy.plan = None
            proxies.put(proxy)

    return opened


def test_a_request_that_is_lost_at_any_position_loses_and_doubles_nothing(
    through: PositionOpener, protocol: str
) -> None:
    def today(found: Sequence[Position]) -> list[Position]:
        return cut(found, EACH_DAY, f"S3 {protocol}, by position")

    print(protocol, check_positions(through, choose=today, at_once=AT_ONCE), sep=": ")


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
    with pytest.raises(AssertionError, match=r"PutIf #3 doubled: .*manifest.* is not there"):
        check_positions(through, choose=first_epochs_decision)
