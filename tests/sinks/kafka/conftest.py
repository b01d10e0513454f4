"""What tests of the Kafka sink share."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator

import pytest

from abs_services import KafkaService

with warnings.catch_warnings():
    # kafka-python reads its own files by importlib.resources.read_text, as it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    importlib.import_module("kafka.admin")

from abs_clients.kafka.cluster import close_clusters


@pytest.fixture(scope="session")
def kafka(kafka: KafkaService) -> Iterator[KafkaService]:
    """The broker that all tests of this process share; this process's clients end before it."""
    yield kafka
    close_clusters()
