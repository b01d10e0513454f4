"""The lines of the page on logins are taken as they stand, and its function runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from abs_clients.kafka.login_rules import CALLABLE
from abs_clients.options import is_function_name
from abs_clients.postgres.password import FUNCTION
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
    [code] = [text for kind, text in BLOCKS if kind == "python"]
    made: dict[str, object] = {}
    exec(code, made)
    token = made["for_rds"]({"host": "db.example.com", "user": "app"})  # type: ignore[operator]
    assert token.startswith("db.example.com:5432/?")
    assert "DBUser=app" in token
    assert "geheim" not in token
