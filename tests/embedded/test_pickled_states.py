"""States kept as pickles: a job says so, and needs consent where others could write them."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from abs_core.errors import ConfigError
from abs_embedded import Graph, Restore
from abs_embedded.context import TaskContext
from abs_embedded.keyed import KeyedContext
from abs_embedded.operators import Row
from abs_embedded.snapshot import read_record
from abs_embedded.state.codecs import JSON, PICKLE, Codec
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_testing.harness import SCHEMA
from tests.embedded.bench import Bench

ROWS = pa.table({"id": [1, 2], "value": ["a", "b"]})
OWN: Codec[Any] = Codec("own", lambda value: pickle.dumps(value), lambda raw: pickle.loads(raw))
OWN_NAMED: Codec[Any] = Codec("own", OWN.encode, OWN.decode, runs_code=True)


def keeping(bench: Bench, codec: Codec[Any], kind: str = "value") -> Graph:
    def function(row: Row, at: KeyedContext) -> Iterable[Row]:
        if kind == "value":
            at.states["seen"].put(at.key, row["value"])
        return [row]

    def states(context: TaskContext) -> dict[str, Any]:
        if kind == "value":
            return {"seen": context.value("seen", codec)}
        context.lists.list("seen", codec).put(["x"])
        return {}

    graph = Graph("keeping")
    stream = graph.source("rows", TableSource([ROWS])).key_by("id")
    stream.process("keep", function, SCHEMA, states).sink("out", bench.sink)
    return graph


def shared(folder: Path) -> LocalSnapshotStore:
    """A store that others can write to, too."""
    folder.mkdir()
    folder.chmod(0o777)
    return LocalSnapshotStore(folder)


@pytest.mark.parametrize("kind", ["value", "list"])
@pytest.mark.parametrize("codec", [PICKLE, OWN_NAMED], ids=["PICKLE", "own"])
def test_pickles_in_a_store_that_others_can_write_to_need_consent_from_the_first_start_on(
    bench: Bench, tmp_path: Path, codec: Codec[Any], kind: str
) -> None:
    bench.store = shared(tmp_path / "shared")
    graph = keeping(bench, codec, kind)
    with pytest.raises(ConfigError, match=r"'seen' of operator keep.*trust_pickles=True"):
        bench.job(graph).run()
    assert bench.rows() == []
    bench.job(graph, trust_pickles=True).run()
    assert len(bench.rows()) == 2


def test_a_savepoint_from_a_store_that_others_can_write_to_needs_consent(
    bench: Bench, tmp_path: Path
) -> None:
    bench.job(keeping(bench, PICKLE)).run()
    last = bench.store.completed()[-1]
    source = shared(tmp_path / "shared")
    record = bench.store.record(last)
    refs = read_record(record).blobs
    for ref in refs:
        source.put(ref.key, bench.store.get(ref))
    source.complete(last, record, refs)
    with pytest.raises(ConfigError, match="trust_pickles=True"):
        bench.job(keeping(bench, PICKLE)).run(Restore(last, source))
    bench.job(keeping(bench, PICKLE), trust_pickles=True).run(Restore(last, source))


def test_a_snapshot_names_its_pickles_and_the_job_says_so_at_start(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "abs_embedded"):
        bench.job(keeping(bench, PICKLE)).run()
        assert "keeps states as pickles: keep.seen" in caplog.text
        assert read_record(bench.store.record(bench.store.completed()[-1])).pickled == ["keep.seen"]
        caplog.clear()
        bench.job(keeping(bench, PICKLE)).run()
    assert "may hold pickles: ['keep.seen']" in caplog.text


def test_a_job_without_pickles_says_nothing_and_needs_no_consent_anywhere(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench.store = shared(tmp_path / "shared")
    with caplog.at_level(logging.INFO, "abs_embedded"):
        for _ in range(2):
            bench.job(keeping(bench, JSON)).run()
    assert "pickle" not in caplog.text
    assert read_record(bench.store.record(bench.store.completed()[-1])).pickled == []


def test_a_folder_is_private_by_its_owner_and_mode(tmp_path: Path) -> None:
    assert LocalSnapshotStore(tmp_path / "new").is_private()
    assert not shared(tmp_path / "shared").is_private()
