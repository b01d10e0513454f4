"""The registry's client: what it finds, and its errors; by a stand-in, Apicurio and a mock."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from abs_clients.avro.registry import Registry
from abs_clients.avro.settings import RegistrySettings
from abs_core.errors import OptionError, RefusedError, SchemaError, UnavailableError
from abs_services.registry import StandIn
from tests.kit.apicurio import apicurio

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
MORE = {"name": "note", "type": ["null", "string"], "default": None}
NEEDED = {"name": "note", "type": "string"}


def grown(*fields: Any) -> str:
    return json.dumps({**ORDER, "fields": [*ORDER["fields"], *fields]})


@contextmanager
def stand_in() -> Iterator[str]:
    with StandIn() as served:
        yield served.url


@contextmanager
def mock() -> Iterator[str]:
    yield "mock://registry"


REAL = {"stand-in": stand_in, "mock": mock, "apicurio": apicurio}


@pytest.fixture(
    params=[
        "stand-in",
        "mock",
        pytest.param("apicurio", marks=[pytest.mark.campaign, pytest.mark.services]),
    ],
    scope="module",
)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with REAL[request.param]() as found:
        yield found


def asking(url: str, **more: str) -> Registry:
    return Registry(RegistrySettings(url=url, **more))


def test_versions_are_registered_and_found(url: str) -> None:
    registry = asking(url)
    assert registry.latest("orders-value") is None
    first = registry.register("orders-value", grown())
    second = registry.register("orders-value", grown(MORE))

    assert first != second
    assert registry.register("orders-value", grown()) == first
    assert registry.lookup("orders-value", grown()) == first
    assert registry.lookup("orders-value", grown(NEEDED)) is None
    found = registry.latest("orders-value")
    assert found is not None
    assert (found.id, found.version) == (second, 2)
    assert [field.name for field in found.node.fields] == ["id", "note"]
    assert registry.node(first).name == "Order"


def test_a_version_that_another_client_registered_is_seen_at_once(url: str) -> None:
    reader, writer = asking(url), asking(url)
    if url.startswith("mock"):
        pytest.skip("each client of the library has a mock of its own")
    writer.register("seen-value", grown())
    before = reader.latest("seen-value")
    writer.register("seen-value", grown(MORE))
    after = reader.latest("seen-value")
    assert before is not None
    assert after is not None
    assert (before.version, after.version) == (1, 2)


def test_an_unknown_id_is_named(url: str) -> None:
    with pytest.raises(SchemaError, match="There is no schema 4711"):
        asking(url).node(4711)


def test_references_are_followed() -> None:
    inner = {
        "type": "record",
        "name": "shop.Address",
        "fields": [{"name": "city", "type": "string"}],
    }
    outer = {
        "type": "record",
        "name": "shop.Order",
        "fields": [{"name": "to", "type": "shop.Address"}, {"name": "by", "type": "shop.Address"}],
    }
    with StandIn() as served:
        served.add("address", inner)
        named = {"name": "shop.Address", "subject": "address", "version": 1}
        number = served.add("orders-value", outer, references=[named])
        node = asking(served.url).node(number)
    assert node.fields[0].node == node.fields[1].node
    assert node.fields[0].node.fields[0].name == "city"


def test_a_schema_that_is_not_avro_is_refused_by_name() -> None:
    with StandIn() as served:
        number = served.add("t-value", {"type": "object"}, schemaType="JSON")
        with pytest.raises(SchemaError, match="is of the format JSON, not Avro"):
            asking(served.url).node(number)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(503, UnavailableError), (429, UnavailableError), (403, RefusedError), (400, RefusedError)],
)
def test_each_refusal_is_mapped_to_its_kind(status: int, kind: type[Exception]) -> None:
    with StandIn() as served:
        served.status = status
        with pytest.raises(kind, match=f"HTTP {status}"):
            asking(served.url).latest("t-value")


def test_what_is_no_registry_is_told_with_what_to_look_at() -> None:
    class Page(StandIn):
        def answer(self, path: str, body: Any, login: str) -> tuple[int, Any]:
            return 200, ["<html>"]

    with Page() as served, pytest.raises(RefusedError, match="is no schema registry"):
        asking(served.url).latest("t-value")


def test_a_registry_that_is_away_is_unavailable() -> None:
    with StandIn() as served:
        url = served.url
    with pytest.raises(UnavailableError, match="did not answer") as raised:
        asking(url).node(1)
    assert raised.value.retryable


def test_logins_are_sent_and_a_wrong_one_is_refused_without_being_shown() -> None:
    with StandIn(login="app:geheim") as served:
        served.add("t-value", ORDER)
        basic = asking(served.url, basic_auth_user_info="app:geheim")
        token = asking(
            served.url,
            bearer_auth_credentials_source="STATIC_TOKEN",
            bearer_auth_token="app:geheim",
        )
        assert basic.node(1) == token.node(1)
        with pytest.raises(RefusedError) as refused:
            asking(served.url, basic_auth_user_info="app:falsch").node(1)
    assert "falsch" not in str(refused.value)


def test_settings_that_the_client_does_not_take_are_an_error_of_the_options() -> None:
    with pytest.raises(OptionError, match="does not take its settings"):
        asking("http://127.0.0.1:1", ssl_ca_location="/no/such/file").node(1)


def test_no_secret_is_shown() -> None:
    settings = RegistrySettings(
        url="https://r", basic_auth_user_info="u:geheim", ssl_key_password="geheim"
    )
    assert "geheim" not in repr(settings)
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.campaign
@pytest.mark.services
def test_an_incompatible_schema_is_refused_by_a_real_registry() -> None:
    with apicurio() as url:
        registry = asking(url)
        registry.register("orders-value", grown())
        with pytest.raises(SchemaError, match=r"orders-value cannot be registered.*ncompatible"):
            registry.register("orders-value", grown(NEEDED))


def test_a_path_that_is_no_registrys_is_no_missing_schema() -> None:
    with StandIn() as served:
        served.add("orders-value", ORDER)
        wrong = asking(f"{served.url}/apis")
        for call in (
            lambda: wrong.latest("orders-value"),
            lambda: wrong.node(1),
            lambda: wrong.lookup("orders-value", json.dumps(ORDER)),
        ):
            with pytest.raises(RefusedError, match="has no such path"):
                call()


def test_a_schema_that_was_deleted_for_good_is_not_remembered_by_a_registry_that_asks_anew() -> (
    None
):
    with StandIn() as served:
        number = served.add("orders-value", ORDER)
        registry = asking(served.url)
        assert registry.node(number).name == "Order"
        served.delete("orders-value")
        assert registry.node(number).name == "Order"
        registry.forget()
        with pytest.raises(SchemaError, match=f"There is no schema {number}"):
            registry.node(number)
