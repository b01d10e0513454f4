"""The server is killed with SIGKILL at the worst moments: no row is lost, none is doubled."""

from __future__ import annotations

import pytest

from abs_services import S3Service
from tests.sample import members
from tests.sinks.crashes import *  # noqa: F403 - the suite
from tests.sinks.crashes import killable
from tests.sinks.s3.conftest import PROTOCOLS

pytestmark = pytest.mark.services


@pytest.fixture
def server(store: S3Service) -> S3Service:
    killable(store)
    return store


@pytest.fixture(params=members(PROTOCOLS, 1, "S3, crashes of the server"))
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)
