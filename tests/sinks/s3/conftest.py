"""What tests of the S3 sink share: credentials by boto3's chain, a folder for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial

import pytest

from abs_services import S3Service
from abs_sinks.s3.client import close_idle
from abs_sinks.s3.testing import FolderHarness, open_folder

PROTOCOLS = ("2pc", "wal", "idempotent")

FolderOpener = Callable[[], AbstractContextManager[FolderHarness]]


@pytest.fixture(scope="module")
def store(s3: S3Service) -> Iterator[S3Service]:
    """The S3 server, with its credentials in the environment: child processes have them too."""
    s3.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        close_idle()
        yield s3
        close_idle()


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
