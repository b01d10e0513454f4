"""The lines of the page on logins are taken as they stand, and its function runs."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from abs_clients import functions
from abs_clients.functions import is_function_name
from abs_clients.kafka.login import login_of
from abs_clients.kafka.login_rules import CALLABLE
from abs_clients.postgres.password import FUNCTION, PasswordSource
from abs_core.errors import OptionError
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.postgres.options import OPTIONS, PostgresOptions
from tests.kit.token_server import TokenServer

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "access.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
LINES = [
    dict(line.split("=", 1) for line in text.splitlines())
    for kind, text in BLOCKS
    if kind == "properties"
]
KAFKA = [block for block in LINES if "kafka.bootstrap.servers" in block]
FUNCTIONS: dict[str, Any] = {}
for kind, text in BLOCKS:
    if kind == "python":
        exec(text, FUNCTIONS)


@pytest.mark.parametrize("block", KAFKA)
def test_the_lines_for_kafka_are_taken_for_the_columnar_producer_too(block: dict[str, str]) -> None:
    options = KafkaOptions.parse({**block, "topic": "t", "producer": "columnar"})
    assert options.choice.columnar
    less = {name: value for name, value in block.items() if name != "kafka.sasl.mechanism"}
    with pytest.raises(OptionError):
        KafkaOptions.parse({**less, "topic": "t"})


def test_the_lines_for_openid_connect_are_those_that_run_on_a_broker() -> None:
    """``tests/sinks/kafka/test_kafka_tokens.py`` runs jobs with the token server's."""
    ours = {f"kafka.{name}" for name in TokenServer().settings("a:1")}
    assert ours in [set(block) for block in KAFKA]


def test_the_lines_for_postgresql_are_taken_and_each_option_of_the_table_is_one() -> None:
    [block] = [block for block in LINES if "url" in block]
    assert is_function_name(block[FUNCTION])
    assert PostgresOptions.parse(block).address.source is not None
    known = {option.name for option in OPTIONS}
    named = set(re.findall(r"`(password\w+)[=`]", PAGE))
    assert named == {name for name in known if name.startswith("password") and name != "password"}
    assert f"kafka.{CALLABLE}=" in PAGE


def test_the_function_for_rds_makes_a_token_without_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "geheim")
    token = FUNCTIONS["for_rds"]({"host": "db.example.com", "user": "app"})
    assert token.startswith("db.example.com:5432/?")
    assert "DBUser=app" in token
    assert "geheim" not in token


def test_the_functions_for_entra_give_what_each_client_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Azure's package is stood in for: there is no Entra to test against."""
    asked: list[str] = []

    class Credential:
        def get_token(self, scope: str) -> SimpleNamespace:
            asked.append(scope)
            return SimpleNamespace(token="ein-token", expires_on=2_000_000_000)

    stand_in = SimpleNamespace(DefaultAzureCredential=Credential)
    monkeypatch.setitem(sys.modules, "azure", SimpleNamespace(identity=stand_in))
    monkeypatch.setitem(sys.modules, "azure.identity", stand_in)
    monkeypatch.setitem(sys.modules, "mycompany", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "mycompany.tokens", SimpleNamespace(**FUNCTIONS))
    [block] = [each for each in KAFKA if each.get(f"kafka.{CALLABLE}", "").endswith("for_entra")]
    login = login_of(KafkaOptions.parse({**block, "topic": "t"}).kafka)
    assert login is not None
    assert (login.current().text, login.current().expires) == ("ein-token", 2_000_000_000)
    assert asked == ["https://demo.servicebus.windows.net/.default"]
    source = PasswordSource(FUNCTION, "mycompany.tokens:for_entra_postgres")
    assert source.obtain({"user": "app"}) == "ein-token"


def test_the_entry_point_of_the_page_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    [text] = [text for kind, text in BLOCKS if kind == "toml"]
    [(group, named)] = tomllib.loads(text)["project"]["entry-points"].items()
    assert group == functions.GROUP
    offered = [EntryPoint(name, value, group) for name, value in named.items()]
    monkeypatch.setattr(functions, "entry_points", lambda *, group, name: offered)
    [name] = named
    assert f"`kafka.{CALLABLE}={name}`" in PAGE
    block = next(each for each in KAFKA if f"kafka.{CALLABLE}" in each)
    KafkaOptions.parse({**block, f"kafka.{CALLABLE}": name, "topic": "t"})
