"""The same ``kafka.*`` option means the same to a sink and to a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import confluent_kafka
import pytest

from abs_clients.kafka import settings
from abs_clients.kafka.setting_rules import PYTHONS
from abs_clients.kafka.setting_table import JAVA_ONLY
from abs_clients.kafka.settings import Settings
from abs_core.errors import OptionError
from abs_sinks.kafka.options import KafkaOptions
from abs_sources.kafka.options import KafkaSourceOptions

Parse = Callable[[Mapping[str, str]], Settings]


def sink(given: Mapping[str, str]) -> Settings:
    fixed = {"kafka.bootstrap.servers": "a:1", "topic": "t", "protocol": "2pc"}
    return KafkaOptions.parse({**fixed, **given}).kafka


def source(given: Mapping[str, str]) -> Settings:
    fixed = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    return KafkaSourceOptions.parse({**fixed, **given}).client


def refusal(parse: Parse, given: Mapping[str, str]) -> str:
    with pytest.raises(OptionError) as caught:
        parse(given)
    return str(caught.value).partition(": ")[2]


@pytest.mark.parametrize("name", [*JAVA_ONLY, *PYTHONS])
def test_a_name_of_another_client_is_refused_with_the_same_equivalent(name: str) -> None:
    said = refusal(sink, {f"kafka.{name}": "x"})
    assert said == refusal(source, {f"kafka.{name}": "x"})
    assert JAVA_ONLY.get(name, "leave it out") in said


@pytest.mark.parametrize(
    "given",
    [
        {"kafka.no.such.setting": "1"},
        {"kafka.sasl.usrname": "me"},
        {"kafka.socket.timeout.ms": "soon"},
        {"kafka.security.protocol": "tls"},
        {"kafka.ssl.certificate.location": "/tmp/only.pem"},
        {"kafka.client.id": "a", "KAFKA.client.id": "b"},
    ],
)
def test_what_cannot_be_is_refused_in_the_same_words(given: dict[str, str]) -> None:
    assert refusal(sink, given) == refusal(source, given)


def test_what_both_take_is_the_same_value() -> None:
    given = {"kafka.client.id": "me", "kafka.SASL.username": "u", "kafka.client.rack": "r"}
    assert sink(given) == source(given)


@pytest.mark.parametrize("parse", [sink, source])
def test_options_that_were_parsed_once_are_parsed_again_without_a_client(
    parse: Parse, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"kafka.client.id": "parsed-twice", "kafka.linger.ms": "7"}
    first = parse(given)

    def made(*_: object, **__: object) -> confluent_kafka.Producer:
        raise AssertionError("a client was made")

    monkeypatch.setattr(settings, "Producer", made)
    assert parse(given) == first
