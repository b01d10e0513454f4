"""What tests of the Kafka sink share."""

from __future__ import annotations

import importlib
import secrets
import warnings

import pytest

from abs_services import KafkaService

with warnings.catch_warnings():
    # kafka-python reads its own files by importlib.resources.read_text, as it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    importlib.import_module("kafka.admin")

from abs_sinks.kafka.options import KafkaOptions
from tests.sinks.kafka.registers import options_of


@pytest.fixture(scope="module")
def register_options(kafka: KafkaService) -> KafkaOptions:
    """A register's topic that the tests of one module share; each has a job of its own."""
    kafka.start()
    return options_of(kafka)


@pytest.fixture
def job() -> str:
    """The name of a job of this test's own."""
    return f"job{secrets.token_hex(6)}"
