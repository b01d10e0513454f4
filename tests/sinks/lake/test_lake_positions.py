"""Every call of a job, and every request to the store and the catalog, is lost in every way."""

from __future__ import annotations

import gc
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from abs_clients.iceberg import catalogs
from abs_services import S3Service
from abs_sinks.delta import DeltaSink
from abs_sinks.iceberg import IcebergSink
from abs_testing import SCHEMA, Calls, Harness, Position, PositionOpener, by_calls
from abs_testing.calls import Loss
from tests.fault_proxy.postgres import LossyProxy
from tests.sample import cut
from tests.sinks.iceberg.harness import open_table as open_iceberg
from tests.sinks.lake.conftest import KINDS, in_bucket, in_folder
from tests.sinks.positions import (
    Lane,
    in_each,
    test_a_call_that_is_lost_loses_and_doubles_nothing,  # noqa: F401
    test_no_call_at_any_position_can_be_lost,  # noqa: F401
)
from tests.sinks.s3.proxy import ProxyCalls, Request, running

pytestmark = [
    pytest.mark.services,
    pytest.mark.timeout(3600),
    # SQLAlchemy leaves connections to the collector when a catalog of pyiceberg goes.
    pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning"),
]

SINKS: dict[str, Any] = {"delta": DeltaSink, "iceberg": IcebergSink}


def to_the_store(kind: str, folder: Path, store: S3Service, prefix: str) -> PositionOpener:
    """Sinks go through a proxy, data and log alike; the table is looked at without it."""

    @contextmanager
    def opened() -> Iterator[tuple[Harness, Calls]]:
        table = in_bucket(kind, folder, store, prefix)
        with running(store.endpoint) as proxy, table() as harness:
            given: Any = harness
            server = replace(given.options.server, endpoint=proxy.endpoint, timeout=20.0)
            options = replace(given.options, server=server)
            given.new_sink = partial(SINKS[kind], options, SCHEMA)
            yield harness, ProxyCalls(proxy)

    return opened


def to_the_catalog(folder: Path, database: str) -> PositionOpener:
    """The catalog is in PostgreSQL, and sinks reach it by a relay; data files are in a folder."""

    def uri(url: str, schema: str) -> str:
        # Without a timeout a commit waits as long as the transaction of one that is delayed.
        options = quote(f"-csearch_path={schema} -clock_timeout=2000")
        return f"{url.replace('postgresql://', 'postgresql+psycopg://')}?options={options}"

    @contextmanager
    def opened() -> Iterator[tuple[Harness, Calls]]:
        schema = f"catalog_{secrets.token_hex(6)}"
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
        direct = open_iceberg(folder, None, {}, uri(database, schema))
        with direct as harness, LossyProxy(database) as relay:
            lossy = dict(harness.options.properties) | {"uri": uri(relay.url, schema)}
            options = replace(harness.options, properties=tuple(sorted(lossy.items())))
            harness.new_sink = partial(IcebergSink, options, SCHEMA)
            yield harness, relay
        catalogs.opened.cache_clear()  # with the connections of this table's catalogs
        gc.collect()

    return opened


class CatalogRequest(Request):
    """A request to a REST catalog."""

    @property
    def call(self) -> str:
        """Its method and what it is of: a table by its name, a list by its kind."""
        return f"{self.method} {urlsplit(self.path).path.rpartition('/')[2]}"


class CatalogCalls(ProxyCalls):
    """Likewise."""

    def losses(self, name: str) -> Sequence[Loss]:
        return (Loss.REQUEST,) if name.startswith(("GET", "HEAD")) else tuple(Loss)


def to_the_rest_catalog(folder: Path, rest: Mapping[str, str]) -> PositionOpener:
    """Sinks reach the catalog by a proxy; data files are in a folder."""

    @contextmanager
    def opened() -> Iterator[tuple[Harness, Calls]]:
        direct = open_iceberg(folder, None, {}, catalog=rest)
        with direct as harness, running(rest["uri"], CatalogRequest) as proxy:
            lossy = dict(harness.options.properties) | {"uri": proxy.endpoint}
            options = replace(harness.options, properties=tuple(sorted(lossy.items())))
            harness.new_sink = partial(IcebergSink, options, SCHEMA)
            yield harness, CatalogCalls(proxy)
        catalogs.opened.cache_clear()

    return opened


def of_the_decision(found: Sequence[Position]) -> list[Position]:
    deciding = [each for each in found if "UPDATE" in each.name or "COMMIT" in each.name]
    return cut(deciding, 2, "c")


def may_wait(position: Position) -> bool:
    """What ends a transaction keeps the table's row locked while it is delayed."""
    return position.loss is Loss.DELAY


# What the catalog's sample tries is what decides.
LANES = [
    *(Lane(f"{kind} calls", lost=12) for kind in KINDS),
    *(Lane(f"{kind} store", lost=2, many=2) for kind in KINDS),
    Lane("catalog", lost=2, choose=of_the_decision, may_wait=may_wait),
]
pytest_generate_tests = in_each(LANES)


@pytest.fixture
def through(lane: Lane, tmp_path: Path, request: pytest.FixtureRequest) -> PositionOpener:
    if lane.name == "catalog":
        return to_the_catalog(tmp_path, request.getfixturevalue("shared_database"))
    kind, way = lane.name.split()
    if way == "calls":
        return by_calls(in_folder(kind, tmp_path))
    of = request.getfixturevalue
    return to_the_store(kind, tmp_path, of("store"), of("prefix"))
