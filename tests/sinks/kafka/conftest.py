"""What tests of the Kafka sink share."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator

import pytest

with warnings.catch_warnings():
    # kafka-python reads its own files by importlib.resources.read_text, as it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    importlib.import_module("kafka.admin")


@pytest.fixture(scope="session", autouse=True)
def control_clients_are_closed() -> Iterator[None]:
    """They live as long as the process; sockets left open at its end are warned of."""
    yield
    from abs_sinks.kafka.control import close_all

    close_all()
