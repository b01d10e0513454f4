"""What tests of the S3 sink share: options that name the server, a folder for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial

import pytest

from abs_services import S3Service
from abs_sinks.s3.testing import FolderHarness, open_folder
from tests.sinks.s3.clock import SetClock, clock
from tests.sinks.s3.proxy import Proxy, running

PROTOCOLS = ("2pc", "wal", "idempotent")

FolderOpener = Callable[[], AbstractContextManager[FolderHarness]]


@pytest.fixture
def given(store: S3Service) -> Mapping[str, str]:
    """Options that name the server; ``protocol`` is 2pc."""
    store.start()  # the test before may have left it killed
    return {"endpoint": store.endpoint, "region": store.region, "timeout": "20"}


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    """Each way to use the sink."""
    return str(request.param)


@pytest.fixture
def opener(store: S3Service, given: Mapping[str, str], prefix: str, protocol: str) -> FolderOpener:
    """Opens a harness on an empty folder."""
    return partial(open_folder, f"s3://{store.bucket}/{prefix}", {**given, "protocol": protocol})


@pytest.fixture
def harness(opener: FolderOpener) -> Iterator[FolderHarness]:
    """An empty folder."""
    with opener() as harness:
        yield harness


@pytest.fixture
def set_clock() -> Iterator[SetClock]:
    """Sets this process's clock, for the test."""
    with clock() as set_clock:
        yield set_clock


@pytest.fixture(scope="module")
def proxy(store: S3Service) -> Iterator[Proxy]:
    """A proxy before the server, which a module's tests share."""
    with running(store.endpoint) as proxy:
        yield proxy
