"""What tests of the PostgreSQL sink share: a table for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from urllib.parse import urlsplit

import pytest

from abs_services import PostgresService, in_database
from abs_sinks.postgres.testing import VARIANTS, TableHarness, Variant, open_table
from tests.sinks.postgres.copied import Connection, session


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> Variant:
    """Each way to use the sink."""
    return VARIANTS[request.param]


@pytest.fixture
def opener(
    postgres: PostgresService, shared_database: str, variant: Variant
) -> Callable[[], AbstractContextManager[TableHarness]]:
    """Opens a harness on an empty table, for the variant."""
    postgres.start()  # the test before may have left it killed
    superuser = in_database(postgres.admin_url, urlsplit(shared_database).path.lstrip("/"))
    return partial(open_table, shared_database, variant, superuser)


@pytest.fixture
def harness(opener: Callable[[], AbstractContextManager[TableHarness]]) -> Iterator[TableHarness]:
    """An empty table, for the variant."""
    with opener() as harness:
        yield harness


@pytest.fixture
def connection(shared_database: str) -> Iterator[Connection]:
    """A session in an empty database."""
    with session(shared_database) as made:
        yield made


@pytest.fixture
def table(shared_database: str) -> Iterator[TableHarness]:
    """An empty table, for appending under 2pc."""
    with open_table(shared_database, VARIANTS["2pc-append"]) as harness:
        yield harness
