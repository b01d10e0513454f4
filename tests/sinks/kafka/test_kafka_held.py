"""One handle that the system lets nobody abort stops no sweep: a transaction, a segment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from abs_core.model import HandleName
from abs_core.wal.contracts import name_of
from abs_services import KafkaService
from abs_testing import run_check
from abs_testing.checks import CHECKS
from tests import sample
from tests.fault_proxy.kafka import LossyBroker
from tests.kit.kafka import TopicHarness, Variant
from tests.kit.kafka_modes import LogHarness

pytestmark = pytest.mark.services

(RULE,) = [
    check
    for check in CHECKS
    if check.rule == "a_handle_that_cannot_be_aborted_does_not_stop_the_sweep_of_the_others"
]


class HeldTopic(TopicHarness):
    """Its sinks go through a relay, which denies them one transactional id."""

    def __init__(self, relay: LossyBroker, bootstrap: str, variant: Variant) -> None:
        super().__init__(bootstrap, variant)
        self._relay = relay
        self.through(relay.bootstrap)

    @contextmanager
    def held(self, handle: HandleName) -> Iterator[None]:
        """See ``abs_testing.Holding``."""
        before = self._relay.denials
        self._relay.denied = str(handle)
        try:
            yield
        finally:
            self._relay.denied = ""
        assert self._relay.denials > before, "no abort met the denial"


class HeldLog(LogHarness):
    """A segment cannot be deleted where a folder has its name."""

    @contextmanager
    def held(self, handle: HandleName) -> Iterator[None]:
        """See ``abs_testing.Holding``."""
        segment, aside = self.folder / name_of(handle), self.folder / "aside"
        segment.rename(aside)
        segment.mkdir()
        try:
            yield
        finally:
            segment.rmdir()
            aside.rename(segment)


@contextmanager
def held_topic(bootstrap: str, variant: Variant) -> Iterator[TopicHarness]:
    with LossyBroker(bootstrap) as relay:
        harness = HeldTopic(relay, bootstrap, variant)
        try:
            yield harness
        finally:
            harness.let_go()
            harness.close()


def held_log(folder: Path, bootstrap: str, variant: Variant) -> closing[TopicHarness]:
    return closing(HeldLog(bootstrap, variant, folder))


@sample.cases(1, of="own")
@pytest.mark.parametrize("own", [True, False], ids=["own-register", "foreign-register"])
@pytest.mark.parametrize("protocol", ["2pc", "wal"])
def test_a_handle_that_nobody_may_abort_does_not_stop_the_sweep_of_the_others(
    kafka: KafkaService, tmp_path: Path, protocol: str, own: bool
) -> None:
    kafka.start()
    openers: dict[str, Callable[[str, Variant], AbstractContextManager[TopicHarness]]] = {
        "2pc": held_topic,
        "wal": partial(held_log, tmp_path),
    }
    variant = Variant(protocol, own_register=own)
    assert run_check(partial(openers[protocol], kafka.bootstrap, variant), RULE)
