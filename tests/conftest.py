"""Real services for tests, started when a test first asks for one.

One server of a kind per pytest process: under pytest-xdist each worker has its own, so a test may
kill it without disturbing another worker. They end with the process, even if it is SIGKILLed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from abs_services import PostgresService, fresh_database, services


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresService]:
    """A PostgreSQL server, shared by the tests of this process; its way is ``ABS_SERVICES``."""
    with services().postgres() as server:
        yield server


@pytest.fixture
def database(postgres: PostgresService) -> Iterator[str]:
    """libpq URI of a database of this test's own, as the ordinary role that owns it.

    ``postgres.start()`` before and after: a test may leave the server killed.
    """
    with fresh_database(postgres) as url:
        yield url
