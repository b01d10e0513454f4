"""Credentials that a REST catalog vends: renewed, taken back, between processes; never told or kept."""

from __future__ import annotations

import pickle
import secrets
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from abs_clients.s3.client import close_idle
from abs_clients.s3.renewed import Renewed
from abs_clients.s3.server import Vended
from abs_core.codec import state_to_text
from abs_core.crash import CrashPoint, arm
from abs_core.errors import RefusedError
from abs_services import S3Service, services
from abs_services.native import s3 as native
from abs_services.processes import free_ports
from abs_services.settings import s3_credentials
from abs_sinks.iceberg import IcebergOptions, IcebergSink
from abs_testing.case import within
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import Run
from tests.kit.rest_catalog import rest_catalog
from tests.kit.vending import TAKEN_BACK, Vending, vending_catalog
from tests.planted import planted
from tests.sinks.s3.proxy import Proxy, running

pytestmark = [pytest.mark.services, pytest.mark.campaign]

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


@dataclass
class Shop:
    """A catalog that vends, and the store that takes what it vends."""

    vending: Vending
    options: IcebergOptions
    proxy: Proxy
    inner: dict[str, str]

    @property
    def ids(self) -> list[int]:
        rows = load_catalog("inner", **self.inner).load_table("db.t").scan().to_arrow()
        return sorted(rows["id"].to_pylist())

    def run(self) -> Run:
        """As another process has it: without clients, and without what they know."""
        close_idle()
        return Run(IcebergSink(self.options, SCHEMA), "job")


@pytest.fixture(scope="module")
def keyed() -> Iterator[tuple[S3Service, dict[str, str]]]:
    """A server of buckets that knows many keys, and those to be vended."""
    keys = {f"VENDED{number:04}": secrets.token_hex(20) for number in range(2000)}

    def more(*root: str) -> Any:
        made: Any = s3_credentials(*root)
        told = [{"accessKey": key, "secretKey": secret} for key, secret in keys.items()]
        actions = made["identities"][0]["actions"]
        made["identities"].append({"name": "vended", "credentials": told, "actions": actions})
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "s3_credentials", more)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        with services().s3() as server:
            yield server, keys


@pytest.fixture
def shop(keyed: tuple[S3Service, dict[str, str]], tmp_path: Path) -> Iterator[Shop]:
    server, keys = keyed
    inner = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{server.bucket}/{tmp_path.name}",
        "s3.endpoint": server.endpoint,
        "s3.access-key-id": server.access_key,
        "s3.secret-access-key": server.secret_key,
        "s3.region": server.region,
    }
    made = load_catalog("inner", **inner)
    made.create_namespace("db")
    made.create_table("db.t", SCHEMA)
    # Each test has other keys.
    some = dict(list(keys.items())[: len(keys) // 2])
    vending = Vending(some)
    with running(server.endpoint) as proxy:
        proxy.denied, proxy.denial = vending.refuses, TAKEN_BACK
        told = {"s3.endpoint": proxy.endpoint, "s3.region": server.region}
        with vending_catalog(inner, vending, told) as url:
            given = {"table": "db.t", "catalog.type": "rest", "catalog.uri": url}
            yield Shop(vending, IcebergOptions.parse(given), proxy, inner)
    close_idle()


def rows(first: int, count: int = 3, size: int = 1) -> pa.RecordBatch:
    texts = [secrets.token_hex(size // 2) for _ in range(count)]
    return pa.record_batch({"id": range(first, first + count), "text": texts}, SCHEMA)


def test_keys_that_are_taken_back_at_any_request_are_replaced(shop: Shop) -> None:
    """Within a multipart upload, at a conditional put of the register, at the completion."""
    for number in range(2):
        run = shop.run()
        attempt = run.attempt(number, 0)
        for part in range(4):
            attempt.writer.write(rows(number * 1000 + part * 10, 8, 2 << 20))
            attempt._rows += 8
            shop.vending.take_back()
        made = attempt.pre_commit()
        shop.vending.take_back()
        run.commit(number, [made])
    assert shop.ids == [
        n * 1000 + part * 10 + i for n in range(2) for part in range(4) for i in range(8)
    ]
    assert "UploadPart" in shop.proxy.order
    assert len(shop.vending.vended) > 8


def test_another_process_completes_what_one_with_other_keys_has_prepared(shop: Shop) -> None:
    run = Run(IcebergSink(shop.options, SCHEMA), "job", cut=Cut("commit"))
    attempt = run.attempt(0, 0)
    attempt.writer.write(rows(0))
    attempt._rows += 3
    with pytest.raises(Halted):
        run.commit(0, [attempt.pre_commit()])
    before = set(shop.vending.vended)
    shop.vending.take_back()
    following = shop.run()
    attempt = following.attempt(1, 0)
    attempt.writer.write(rows(10))
    attempt._rows += 3
    following.commit(1, [attempt.pre_commit()])
    assert shop.ids == [0, 1, 2, 10, 11, 12]
    assert set(shop.vending.vended) > before


def written(options: IcebergOptions, number: int, point: CrashPoint | None) -> None:
    """An epoch of a process of its own, which dies at the point."""
    arm(point)
    run = Run(IcebergSink(options, SCHEMA), "job")
    attempt = run.attempt(number, 0)
    attempt.writer.write(rows(number * 10))
    attempt._rows += 3
    run.commit(number, [attempt.pre_commit()])


DEATHS = (CrashPoint.AFTER_DECIDE, CrashPoint.BETWEEN_COMMITS)
"""Before a file is completed, and when all are, and the table does not have them."""


@pytest.mark.parametrize("point", DEATHS)
def test_what_a_killed_process_has_decided_another_one_completes_with_its_own_keys(
    shop: Shop, point: CrashPoint
) -> None:
    killed = get_context("spawn").Process(target=written, args=(shop.options, 0, point))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert shop.ids == []
    before = set(shop.vending.vended)
    shop.vending.take_back()
    close_idle()
    written(shop.options, 1, None)
    assert shop.ids == [0, 1, 2, 10, 11, 12]
    assert set(shop.vending.vended) > before


LIFE = 30.0


@pytest.mark.timeout(300)
def test_keys_that_live_for_30_seconds_are_outlived_by_a_task_and_a_decision(shop: Shop) -> None:
    """The store refuses a key from the end of its life on."""
    shop.vending.life = LIFE

    def outlived() -> None:
        ends = max(shop.vending.alive.values())
        assert within(LIFE + 5, lambda: time.time() > ends)

    run = shop.run()
    attempt = run.attempt(0, 0)
    for part in range(2):
        attempt.writer.write(rows(part * 10, 8, 2 << 20))
        attempt._rows += 8
        outlived()
    made = attempt.pre_commit()
    outlived()
    run.commit(0, [made])
    assert shop.ids == [*range(8), *range(10, 18)]
    assert "UploadPart" in shop.proxy.order


@pytest.mark.parametrize("apart", [False, True])
def test_a_table_is_made_with_the_keys_that_come_with_it(shop: Shop, apart: bool) -> None:
    """Told in the table's configuration, or as storage credentials."""
    shop.vending.apart = apart
    given = {"table": "db.made", "createtable": "true", "partitionby": "text"}
    properties = {f"catalog.{name}": value for name, value in shop.options.properties}
    options = IcebergOptions.parse({**properties, **given})
    written(options, 0, None)
    shop.vending.take_back()
    close_idle()
    written(options, 1, None)
    table = load_catalog("inner", **shop.inner).load_table("db.made")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 10, 11, 12]
    assert [field.name for field in table.spec().fields] == ["text"]


@pytest.mark.timeout(300)
def test_icebergs_own_catalog_vends_other_keys_after_it_was_restarted(
    keyed: tuple[S3Service, dict[str, str]], tmp_path: Path
) -> None:
    """``RESTCatalogServer`` vends the keys that it was started with; the store refuses others."""
    server, keys = keyed
    names = list(keys)[-2:]
    [port] = free_ports(1)
    vending = Vending(keys)
    with running(server.endpoint) as proxy:
        proxy.denied, proxy.denial = vending.refuses, TAKEN_BACK

        def catalog(name: str) -> Any:
            vending.alive = {name: time.time() + 3600}
            close_idle()
            store = {
                "warehouse": f"s3://{server.bucket}/{tmp_path.name}",
                "client.region": server.region,
                "s3.endpoint": server.endpoint,
                "s3.path-style-access": "true",
                "s3.access-key-id": name,
                "s3.secret-access-key": keys[name],
            }
            return rest_catalog(tmp_path / "catalog", store, port)

        with catalog(names[0]) as url:
            given = {"table": "db.t", "createtable": "true", "endpoint": proxy.endpoint}
            given |= {"catalog.type": "rest", "catalog.uri": url}
            given["region"] = server.region
            options = IcebergOptions.parse(given)
            load_catalog("rest", type="rest", uri=url).create_namespace("db")
            written(options, 0, None)
            killed = get_context("spawn").Process(target=written, args=(options, 1, DEATHS[0]))
            killed.start()
            killed.join()
            assert killed.exitcode == -signal.SIGKILL
        with catalog(names[1]):
            written(options, 2, None)
            found = options.address.read().read_all()["id"].to_pylist()
    assert sorted(found) == [0, 1, 2, 10, 11, 12, 20, 21, 22]


def test_a_catalog_that_vends_none_needs_credentials_of_ones_own(shop: Shop) -> None:
    """With an endpoint in the options; a REST catalog may vend."""
    named = {f"catalog.{name}": value for name, value in shop.inner.items() if "s3." not in name}
    options = IcebergOptions.parse({**named, "table": "db.t", "endpoint": shop.proxy.endpoint})
    with pytest.raises(RefusedError, match="There are no credentials"):
        options.address.load()


def test_no_credential_is_told_pickled_or_stored(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "abs")
    sink = IcebergSink(shop.options, SCHEMA)
    run = Run(sink, "job")
    attempt = run.attempt(0, 0)
    attempt.writer.write(rows(0))
    attempt._rows += 3
    made = attempt.pre_commit()
    place = shop.options.place(shop.options.address.load())
    assert place is not None
    assert place.options.server.vendor is not None
    run.commit(0, [made])
    told = [repr(place.options), repr(made), caplog.text, state_to_text(run.state())]
    text = "".join(told).encode() + pickle.dumps((place.options, shop.options, made))
    assert shop.vending.vended
    for key in shop.vending.vended:
        assert key.encode() not in text
        assert shop.vending.keys[key].encode() not in text


class Counting:
    """A vendor that counts."""

    def __init__(self, life: float | None) -> None:
        self.life = life
        self.calls = 0

    def vend(self) -> Vended:
        self.calls += 1
        ends = None if self.life is None else time.time() + self.life
        return Vended(f"key{self.calls}", "secret", None, ends)


@pytest.mark.parametrize(("life", "calls"), [(3600.0, 1), (None, 1), (30.0, 1)])
def test_credentials_are_renewed_in_the_last_part_of_their_life_and_not_before(
    life: float | None, calls: int
) -> None:
    vendor = Counting(life)
    renewed = Renewed(vendor)
    assert vendor.calls == 0
    for _ in range(5):
        renewed.get_frozen_credentials()
    assert vendor.calls == calls
    if life == 30.0:
        renewed._time_fetcher = lambda: _later(8)
        assert renewed.get_frozen_credentials().access_key == "key1"
        renewed._time_fetcher = lambda: _later(24)
        assert renewed.get_frozen_credentials().access_key == "key2"


def test_credentials_that_have_ended_are_an_error_of_a_clock() -> None:
    with pytest.raises(RefusedError, match=r"have ended already.*clock"):
        Renewed(Counting(-1.0)).get_frozen_credentials()


def test_planted_keys_that_are_kept_are_found(shop: Shop) -> None:
    with planted((Renewed, "taken_back", lambda self, **_: None), by=RefusedError):
        test_keys_that_are_taken_back_at_any_request_are_replaced(shop)


def _later(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)
