"""Whole jobs whose registry wants a login, a certificate or a proxy; each option does its part."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from abs_clients.avro.registry import registry as registry_of
from abs_core.errors import AbsError, OptionError, RefusedError, SchemaError, UnavailableError
from abs_services import KafkaService
from abs_services.registry import StandIn
from abs_testing.case import Case, rows
from tests.kit.certificates import PASSWORD, Certificate
from tests.kit.token_server import TokenServer
from tests.sinks.kafka.test_kafka_avro_sink import NEWER, ORDER, opened

pytestmark = pytest.mark.services

USER = "registry.basic.auth.user.info"
SOURCE, BEARER = "registry.bearer.auth.credentials.source", "registry.bearer.auth."
Made = tuple[StandIn, Mapping[str, str]]
"""A registry, and the options with which a job reaches it."""


class _Issued(StandIn):
    """Takes the last token that a token server has given."""

    def __init__(self, tokens: TokenServer) -> None:
        super().__init__()
        self._tokens = tokens

    def answer(self, path: str, body: Any, login: str) -> tuple[int, Any]:
        given = self._tokens.tokens
        self.login = given[-1] if given else "nothing was issued yet"
        return super().answer(path, body, login)


def _basic(scope: ExitStack, folder: Path) -> Made:
    return scope.enter_context(StandIn("app:geheim")), {USER: "app:geheim"}


def _token(scope: ExitStack, folder: Path) -> Made:
    options = {SOURCE: "STATIC_TOKEN", f"{BEARER}token": "geheim"}
    return scope.enter_context(StandIn("geheim")), options


def _issued(scope: ExitStack, folder: Path) -> Made:
    tokens = scope.enter_context(TokenServer())
    return scope.enter_context(_Issued(tokens)), {
        SOURCE: "OAUTHBEARER",
        f"{BEARER}client.id": tokens.client,
        f"{BEARER}client.secret": tokens.secret,
        f"{BEARER}scope": "registry",
        f"{BEARER}issuer.endpoint.url": f"{tokens.url}/token",
        f"{BEARER}logical.cluster": "lsrc-1",
        f"{BEARER}identity.pool.id": "pool-1",
    }


def _tls(scope: ExitStack, folder: Path) -> Made:
    server = Certificate.make(folder, "server")
    served = scope.enter_context(StandIn(tls=server.server()))
    return served, {"registry.ssl.ca.location": str(server.certificate)}


def _mutual(scope: ExitStack, folder: Path) -> Made:
    server, client = (Certificate.make(folder, name) for name in ("server", "client"))
    return scope.enter_context(StandIn(tls=server.server(client))), {
        "registry.ssl.ca.location": str(server.certificate),
        "registry.ssl.certificate.location": str(client.certificate),
        "registry.ssl.key.location": str(client.key),
        "registry.ssl.key.password": PASSWORD,
    }


def _proxy(scope: ExitStack, folder: Path) -> Made:
    served = scope.enter_context(StandIn())  # it looks at a request's path only, as a proxy's has
    return served, {
        "registry.url": "http://registry.invalid:8081",
        "registry.proxy": served.url,
    }


WAYS: Mapping[str, tuple[Callable[[ExitStack, Path], Made], str, type[AbsError]]] = {
    "a password": (_basic, USER, RefusedError),
    "a token": (_token, f"{BEARER}token", OptionError),
    "a token of a server": (_issued, f"{BEARER}client.secret", OptionError),
    "an authority": (_tls, "registry.ssl.ca.location", UnavailableError),
    "a client's certificate": (_mutual, "registry.ssl.certificate.location", AbsError),
    "a proxy": (_proxy, "registry.proxy", UnavailableError),
}
"""What makes the registry, an option that is needed, and the error without it."""


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, ...]]:
    make, needed, kind = WAYS[request.param]
    with ExitStack() as scope:
        yield *make(scope, tmp_path), needed, kind


def test_a_job_reaches_its_registry_by_the_options_and_not_without(
    kafka: KafkaService, way: tuple[StandIn, Mapping[str, str], str, type[AbsError]]
) -> None:
    registry, options, needed, kind = way
    given = {"registry.url": registry.url, "patience": "1s", **options}
    with opened(kafka, registry, given) as harness, closing(Case(harness)) as case:
        number = registry.add(f"{harness.topic}-value", ORDER)
        case.run().epoch(0, rows(0, 3))
        assert harness.ids() == {number}
    fewer = {name: value for name, value in given.items() if name != needed}
    with pytest.raises(kind) as caught:
        _epoch(kafka, registry, fewer)
    assert "geheim" not in str(caught.value)


def _epoch(kafka: KafkaService, registry: StandIn, given: Mapping[str, str]) -> None:
    with opened(kafka, registry, given) as harness, closing(Case(harness)) as case:
        registry.add(f"{harness.topic}-value", ORDER)
        case.run().epoch(0, rows(0, 3))


def test_a_key_has_the_subject_of_its_own_strategy(kafka: KafkaService) -> None:
    """The checks' keys are numbers: that the record's schema does not fit shows that it was taken."""
    options = {
        "key.format": "avro",
        "key.schema": json.dumps({"type": "record", "name": "shop.Key", "fields": []}),
        "key.subject.name.strategy": "record",
    }
    with StandIn() as registry:
        with opened(kafka, registry, options) as harness:
            assert harness.options.formats.subject("key", harness.topic) == "shop.Key"
        with pytest.raises(SchemaError, match=r"key\.schema"):
            _epoch(kafka, registry, options)


def test_after_its_schema_was_deleted_for_good_a_job_goes_on_with_the_newest(
    kafka: KafkaService,
) -> None:
    """Nobody can read records of a deleted schema: the replay does not write more of them."""
    with StandIn() as registry, opened(kafka, registry) as harness, closing(Case(harness)) as case:
        subject = f"{harness.topic}-value"
        old = registry.add(subject, ORDER)
        case.run().attempt(0).write(*rows(0, 3)).pre_commit()  # never decided
        registry.delete(subject)
        registry_of(harness.options.registry).close()  # as in a new process
        with pytest.raises(SchemaError, match=f"no such schema under {subject}"):
            case.run().attempt(0).write(*rows(0, 3))
        new = registry.add(subject, NEWER)
        case.run().epoch(0, rows(0, 3))
        assert harness.ids() == {new} != {old}
