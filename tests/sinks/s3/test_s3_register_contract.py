"""The register in S3 keeps the contract of every register."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from abs_services import S3Service
from abs_sinks.s3 import S3Options, S3Register
from abs_testing.check_register import NewStore
from tests.sinks.contract import test_the_register_keeps_the_rule  # noqa: F401

pytestmark = pytest.mark.services


@pytest.fixture
def new_store(store: S3Service, given: Mapping[str, str], prefix: str) -> NewStore:
    options = S3Options.parse({**given, "path": f"s3://{store.bucket}/{prefix}"})
    return lambda: S3Register(options)
