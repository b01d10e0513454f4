"""The data folder of a new broker: Kafka's tool is run once for the same settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from abs_services.native import NativeKafka, kafka


def text(node: NativeKafka, name: str) -> str:
    return (node.folder / "data" / name).read_text()


def test_a_second_broker_of_the_same_settings_has_the_features_of_the_first_and_ids_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kafka, "broker_jars", lambda java: tmp_path)
    ran: list[Path] = []

    def tool(name: str, command: list[str], folder: Path) -> None:
        ran.append(folder)
        (folder / "data").mkdir()
        (folder / "data" / "bootstrap.checkpoint").write_text(f"features {len(ran)}")
        (folder / "data" / "meta.properties").write_text("the tool's")

    monkeypatch.setattr(kafka, "run_tool", tool)
    given = {"a": {}, "b": {}, "c": {"unstable.feature.versions.enable": "true"}}
    nodes = {name: NativeKafka(tmp_path / name, settings=more) for name, more in given.items()}
    for node in nodes.values():
        node._open_folder()
        for _ in range(2):  # at its second start, too, a node has the folder that it had
            node._set_up()
    assert ran == [nodes["a"].folder, nodes["c"].folder]
    features = [text(node, "bootstrap.checkpoint") for node in nodes.values()]
    assert features == ["features 1", "features 1", "features 2"]
    ids = dict(line.split("=", 1) for line in text(nodes["b"], "meta.properties").splitlines())
    assert len(ids.pop("directory.id")) == 22
    own = nodes["b"].identity
    assert ids == {"version": "1", "cluster.id": own.cluster_id, "node.id": str(own.node)}
