"""The data folder of a new broker: Kafka's tool is run once for the same settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from abs_services.native import NativeKafka
from abs_services.native.kafka import ServerIdentity


def text(node: NativeKafka, name: str) -> str:
    return (node.folder / "data" / name).read_text()


def test_a_second_broker_of_the_same_settings_has_the_features_of_the_first_and_ids_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABS_CACHE", str(tmp_path / "cache"))
    tool, ran = tmp_path / "tool", tmp_path / "ran"
    tool.write_text(
        f"#!/bin/sh\npwd >> {ran}\nmkdir data\n"
        f"wc -l < {ran} > data/bootstrap.checkpoint\necho the tool > data/meta.properties\n"
    )
    tool.chmod(0o755)
    given = {"a": {}, "b": {}, "c": {"unstable.feature.versions.enable": "true"}}
    nodes = {name: NativeKafka(tmp_path / name, settings=more) for name, more in given.items()}
    for node in nodes.values():
        node._open_folder()
        node._keep(ServerIdentity, ServerIdentity.new)
        for _ in range(2):  # at its second start, too, a node has the folder that it had
            node._format([str(tool)])
    assert ran.read_text().split() == [str(nodes["a"].folder), str(nodes["c"].folder)]
    features = [text(node, "bootstrap.checkpoint").strip() for node in nodes.values()]
    assert features == ["1", "1", "2"]
    ids = dict(line.split("=", 1) for line in text(nodes["b"], "meta.properties").splitlines())
    assert len(ids.pop("directory.id")) == 22
    own = nodes["b"].identity
    assert ids == {"version": "1", "cluster.id": own.cluster_id, "node.id": str(own.node)}
