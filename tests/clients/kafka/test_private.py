"""What is used of the Kafka clients beyond their public names stands in one module, and is there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import abs_audit
import abs_chaos
import abs_clients.kafka
import abs_demo
import abs_services
import abs_sinks.kafka
import abs_sources.kafka
from abs_clients.kafka import private
from abs_clients.kafka.cluster import close_clusters, cluster
from abs_services import KafkaService
from abs_sinks.kafka.options import KafkaOptions

PACKAGES = (
    abs_clients.kafka,
    abs_sinks.kafka,
    abs_sources.kafka,
    abs_audit,
    abs_chaos,
    abs_services,
    abs_demo,
)

INNER_MODULES = ("kafka.net", "kafka.client_async", "kafka.conn", "confluent_kafka.cimpl")


@pytest.mark.services
def test_the_clients_have_what_is_used_of_them(kafka: KafkaService) -> None:
    """What a newer kafka-python lacks is named."""
    kafka.start()
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": "t"}
    lacking = private.lacking(cluster(KafkaOptions.parse(given).kafka).client())
    close_clusters()
    assert lacking == []


def test_an_attribute_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster: Any = SimpleNamespace(refresh_metadata=1, brokers=1, broker_metadata=1)
    manager = SimpleNamespace(send=1, call_soon=1, cluster=cluster, broker_version_data=1)
    loop = SimpleNamespace(run=1, _exception=None, await_for=1)
    client: Any = SimpleNamespace(_manager=manager, _net=loop)
    assert private.lacking(client) == []
    with monkeypatch.context() as without:
        without.setattr(private, "AbstractTokenProvider", object)
        assert private.lacking(client) == [private.TO_LOG_IN]
    del loop.await_for, loop.run, cluster.brokers
    assert private.lacking(client) == [
        "_manager.cluster.brokers",
        "_net.run",
        "_manager.wait_for or _net.await_for",
    ]
    del client._manager
    assert "_manager.send" in private.lacking(client)


def test_no_other_module_uses_what_is_private_to_the_clients() -> None:
    used = [
        f"{path.name}: {name}"
        for package in PACKAGES
        for path in sorted(Path(package.__path__[0]).rglob("*.py"))
        if path.name != "private.py"
        for name in _private(ast.parse(path.read_text()))
    ]
    assert used == []


def test_such_a_use_would_be_found() -> None:
    code = "from kafka.net.compat import X\nfrom confluent_kafka.admin._config import Y\nc._manager.x()"
    assert len(list(_private(ast.parse(code)))) == 3


def _private(tree: ast.Module) -> Iterator[str]:
    """Inner modules of the clients that are imported, and private attributes of clients' objects."""
    attributes = {
        name for path in private.REQUIRED_ATTRIBUTES for name in path.split(".") if name[0] == "_"
    }
    for node in ast.walk(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module]
            if node.module == "confluent_kafka":
                modules += [f"confluent_kafka.{alias.name}" for alias in node.names]
        for module in modules:
            of_clients = module.split(".")[0] in ("kafka", "confluent_kafka")
            if module.startswith(INNER_MODULES) or (of_clients and "._" in module):
                yield module
        if isinstance(node, ast.Attribute) and node.attr in attributes:
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not own:
                yield node.attr
