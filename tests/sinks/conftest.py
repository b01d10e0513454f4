"""What tests of all sinks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from abs_services.contracts import Service
from abs_testing import ForkServer, Harness
from abs_testing.case import Case


@pytest.fixture
def case(harness: Harness) -> Iterator[Case]:
    """The target of the fixture ``harness``, and runs on it."""
    with Case(harness) as case:
        yield case


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    """The process from which the jobs of a module are forked, to be killed."""
    with ForkServer() as fork_server:
        yield fork_server


@pytest.fixture
def crash(server: Service) -> Callable[[], None]:
    """Kills the server and starts it again."""

    def crash() -> None:
        server.kill()
        server.start()

    return crash


@pytest.fixture
def empties() -> bool:
    """Whether a crash empties what a task has staged, so that its epoch is written again."""
    return False
