"""The register in PostgreSQL keeps the contract of every register."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from abs_clients.postgres.pool import close_idle
from abs_sinks.postgres import PostgresOptions, PostgresRegister
from abs_testing.check_register import NewStore
from tests.sinks.contract import test_the_register_keeps_the_rule  # noqa: F401

pytestmark = pytest.mark.services


@pytest.fixture
def new_store(shared_database: str) -> Iterator[NewStore]:
    options = PostgresOptions.parse({"url": shared_database, "dbtable": "t"})
    yield lambda: PostgresRegister(options)
    close_idle()
