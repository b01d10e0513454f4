"""Credentials that a REST catalog vends: renewed, taken back, between processes; never told or kept."""

from __future__ import annotations

import pickle
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from abs_clients.s3.client import close_idle
from abs_clients.s3.renewed import Renewed
from abs_clients.s3.server import Vended
from abs_core.codec import state_to_text
from abs_core.errors import RefusedError
from abs_services import S3Service, services
from abs_services.native import s3 as native
from abs_services.settings import s3_credentials
from abs_sinks.iceberg import IcebergOptions, IcebergSink
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import Run
from tests.kit.vending import TAKEN_BACK, Vending, vending_catalog
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


def test_planted_keys_that_are_kept_are_found(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Renewed, "taken_back", lambda self, **_: None)
    with pytest.raises(RefusedError):
        test_keys_that_are_taken_back_at_any_request_are_replaced(shop)


def _later(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)
