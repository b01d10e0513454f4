"""No error shows user and password of a URL that was given to any option (I9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from abs_clients.options import options_of
from abs_clients.s3.server import Server
from abs_core import errors
from abs_core.errors import AbsError
from abs_sinks.delta import DeltaOptions
from abs_sinks.iceberg import IcebergOptions
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.postgres import PostgresOptions
from abs_sinks.s3.options import S3Options
from abs_sources.files.options import FileOptions
from abs_sources.kafka.options import KafkaSourceOptions
from tests.planted import planted

WHOLE: list[tuple[Any, Mapping[str, str]]] = [
    (PostgresOptions, {"url": "postgresql://host/db", "dbtable": "t"}),
    (KafkaOptions, {"kafka.bootstrap.servers": "host:9092", "topic": "t"}),
    (S3Options, {"path": "s3://bucket/x"}),
    (DeltaOptions, {"path": "s3://bucket/x"}),
    (IcebergOptions, {"table": "a.b", "catalog.type": "rest"}),
    (KafkaSourceOptions, {"kafka.bootstrap.servers": "host:9092", "subscribe": "t"}),
    (FileOptions, {"path": "/x", "format": "json"}),
]
SCHEMES = ("s3", "s3a", "http", "https", "postgresql", "jdbc:postgresql", "file", "kafka", "none")
SECRETS = ("hidden", "hid/den", "9hidden")
"""Passwords; the second as S3's are."""


def texts_of(error: BaseException | None) -> str:
    seen = []
    while error is not None:
        seen += [str(error), repr(error)]
        error = error.__cause__ or error.__context__
    return "\n".join(seen)


def shown(parse: Callable[[Mapping[str, str]], object], given: Mapping[str, str]) -> str:
    try:
        parse(given)
    except AbsError as error:
        return texts_of(error)
    return ""


def parse_of(values: Any) -> Callable[[Mapping[str, str]], object]:
    return partial(values.parse, streaming=True) if values is FileOptions else values.parse


def logins_shown() -> list[str]:
    wrong = []
    for values, whole in WHOLE:
        names = {option.name for option in (*options_of(values), *options_of(Server))} | set(whole)
        for name in sorted(names):
            for scheme in SCHEMES:
                for secret in SECRETS:
                    url = f"{scheme}://user:{secret}@host/db"
                    text = shown(parse_of(values), {**whole, name: url})
                    if secret in text:
                        wrong.append(f"{values.__name__} {name}={url}: {text[:300]}")
    return wrong


def test_no_option_of_any_kind_is_shown_with_a_login() -> None:
    assert not (wrong := logins_shown()), "\n".join(wrong)


def test_errors_that_show_logins_are_found() -> None:
    with planted((errors, "_without_logins", lambda text: text), match="path=s3://user:hidden"):
        test_no_option_of_any_kind_is_shown_with_a_login()


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/job@2026-11-29/part",
        "http://127.0.0.1:9000/bucket/a@b is away",
        "abs://a b:c@d",
        "mail me@host, or ask at https://host/",
    ],
)
def test_what_is_no_login_stays(text: str) -> None:
    assert AbsError(text).what == text
