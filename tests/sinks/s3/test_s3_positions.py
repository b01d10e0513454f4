"""Every request of a job, by its position, is dropped, answered in vain, delayed or doubled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from queue import SimpleQueue

import pytest

from abs_core.contracts import Conflict, Version
from abs_core.model import Committable, JobState
from abs_services import S3Service
from abs_sinks.s3 import S3Sink
from abs_sinks.s3.idempotent import IdempotentCommitter
from abs_sinks.s3.manifests import Manifests
from abs_sinks.s3.testing import FolderHarness, open_folder
from abs_testing import (
    SCHEMA,
    Harness,
    Position,
    PositionOpener,
    RepeatOpener,
    check_positions,
)
from abs_testing.calls import Loss
from tests.planted import Plant, planted
from tests.sample import cut
from tests.sinks.positions import *  # noqa: F403 - the suite
from tests.sinks.positions import Lane, in_each
from tests.sinks.s3.buried import NOTED, NotedSink, buried
from tests.sinks.s3.conftest import PROTOCOLS
from tests.sinks.s3.proxy import Proxy, ProxyCalls, by_proxy, running

pytestmark = pytest.mark.services

AT_ONCE = 4
"""Jobs at the same time; each has a proxy for itself."""

LOST, READ, AGAIN = (cut(PROTOCOLS, 1, f"S3, {what}")[0] for what in ("lost", "reads", "repeats"))
"""The protocols whose calls are lost, fail and come again in the sample."""

LETTERS = cut(PROTOCOLS, 1, "S3, dead letters")[0]
"""Likewise, of a folder that refuses rows; a reader sees it and its dead letters together."""

LANES = [
    Lane(
        f"S3 {protocol}",
        lost=4 * (protocol == LOST),
        reads=int(protocol == READ),
        repeats=4 * (protocol == AGAIN),
        at_once=AT_ONCE,
        many=AT_ONCE,
    )
    for protocol in PROTOCOLS
]
LANES += [
    Lane(
        f"S3 {protocol} letters",
        lost=2 * (protocol == LETTERS),
        at_once=AT_ONCE,
        many=AT_ONCE,
    )
    for protocol in PROTOCOLS
]
pytest_generate_tests = in_each(LANES)


@pytest.fixture
def protocol(request: pytest.FixtureRequest) -> str:
    """The lane's, of a test of the suite."""
    if "lane" in request.fixturenames:
        return str(request.getfixturevalue("lane").name.split()[1])
    return str(request.param)


@pytest.fixture(scope="module")
def proxies(store: S3Service) -> Iterator[SimpleQueue[Proxy]]:
    """Those that no job uses now."""
    free: SimpleQueue[Proxy] = SimpleQueue()
    with ExitStack() as held:
        for _ in range(AT_ONCE):
            free.put(held.enter_context(running(store.endpoint)))
        yield free


@pytest.fixture
def through(
    request: pytest.FixtureRequest,
    store: S3Service,
    given: Mapping[str, str],
    prefix: str,
    protocol: str,
    proxies: SimpleQueue[Proxy],
) -> RepeatOpener:
    """Opens a folder whose sinks go through a proxy; it is looked at without it."""
    path, options_given = f"s3://{store.bucket}/{prefix}", {**given, "protocol": protocol}
    letters = "lane" in request.fixturenames and (
        request.getfixturevalue("lane").name.endswith("letters")
    )

    def folder() -> AbstractContextManager[FolderHarness]:
        return (
            buried(path, options_given, together=True)
            if letters
            else open_folder(path, options_given)
        )

    @contextmanager
    def opened() -> Iterator[tuple[Harness, ProxyCalls]]:
        proxy = proxies.get()
        try:
            with folder() as harness:
                options = by_proxy(proxy, harness.options, timeout=20.0)
                kind, schema = (NotedSink, NOTED) if letters else (S3Sink, SCHEMA)
                harness.new_sink = partial(kind, options, schema)
                yield harness, ProxyCalls(proxy)
        finally:
            proxy.plan = None
            proxies.put(proxy)

    return opened


def takes_a_conflict_for_another_winner(plant: Plant) -> None:
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

    plant(IdempotentCommitter, "co_commit", co_commit)


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
    gone = r"PutIf #3 doubled: .*manifest.* no longer exists"
    with planted(takes_a_conflict_for_another_winner, match=gone):
        check_positions(through, choose=first_epochs_decision)
