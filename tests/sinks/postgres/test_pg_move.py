"""A job moves to another cluster by a dump, as for a new version: with its register, by consent."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from abs_core.errors import IdentityError
from abs_services import PostgresService, Provider, fresh_database, services
from abs_services.native.postgres import NativePostgres, find_binaries
from abs_sinks.postgres.testing import VARIANTS, TableHarness, Variant, open_table
from abs_testing.case import Case, consent_in, raises, rows

pytestmark = pytest.mark.services
LEFT, RIGHT, NEXT = rows(0, 3), rows(10, 3), rows(20, 3)


@pytest.fixture(scope="module")
def other_cluster() -> Iterator[PostgresService]:
    if services().provider is not Provider.NATIVE:
        pytest.skip("pg_dump comes with the native server")
    with NativePostgres() as server:
        yield server


def copy_by_dump(origin: str, copy: str) -> None:
    """pg_dump of one database into another: all of it, the schema of the registers, too."""
    binaries = find_binaries(None)
    dump = [str(binaries / "pg_dump"), "--no-owner", "--format=plain", f"--dbname={origin}"]
    load = [str(binaries / "psql"), "--quiet", "--set=ON_ERROR_STOP=1", f"--dbname={copy}"]
    text = subprocess.run(dump, check=True, capture_output=True).stdout
    subprocess.run(load, check=True, input=text, capture_output=True)


@pytest.mark.parametrize("name", ["2pc-append", "wal-upsert"])
def test_a_job_goes_on_in_the_cluster_that_its_database_was_copied_to(
    postgres: PostgresService, other_cluster: PostgresService, name: str
) -> None:
    variant: Variant = VARIANTS[name]
    with fresh_database(postgres) as old, fresh_database(other_cluster) as new:
        with open_table(old, variant) as harness:
            case = Case(harness)
            run = case.run()
            run.epoch(0, LEFT)
            run.epoch(1, RIGHT)
            case.finished(LEFT, RIGHT, when="before the move")
            case.close()
            copy_by_dump(old, new)
            moved = harness.at(new)
        try:
            goes_on_by_consent(moved)
        finally:
            moved.close()


def goes_on_by_consent(moved: TableHarness) -> None:
    """The rule, in the new cluster: the job is refused, goes on by consent, writes nothing twice."""
    case = Case(moved)
    refused = raises(IdentityError, lambda: case.run().begin(1))
    consented = case.run(adopt=consent_in(refused))
    consented.epoch(1, RIGHT)  # a replay: its rows came with the copy
    consented.epoch(2, NEXT)
    case.holds(LEFT, RIGHT, NEXT, when="after the move")
    case.run().epoch(3, rows(30, 2))  # consent is given once
    case.finished(LEFT, RIGHT, NEXT, rows(30, 2), when="after the run that follows")
    case.close()
