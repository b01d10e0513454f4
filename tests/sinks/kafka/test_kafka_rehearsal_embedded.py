"""The embedded runtime with two sinks, one a topic that refuses: each row is in both, or in none."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from threading import Lock

import pyarrow as pa
import pytest

from abs_core.errors import RowError
from abs_core.registers import FileRegister
from abs_embedded import Graph, Job, Sinks
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_services import KafkaService
from abs_testing import batch_of
from abs_testing.fakes import FakeSink, FakeTarget
from tests.embedded.bench import OFTEN
from tests.kit.fake_harness import read
from tests.kit.kafka import Variant
from tests.kit.kafka_modes import open_log

pytestmark = pytest.mark.services

ROWS = [(number, f"{number:040}") for number in range(60)]
"""Longer than what the harness lets its topic take."""


def test_what_the_topic_refuses_is_not_in_the_table_and_afterwards_it_is_in_both(
    kafka: KafkaService, tmp_path: Path
) -> None:
    kafka.start()
    with open_log(kafka.bootstrap, Variant("wal", own_register=False)) as harness:
        table = FakeTarget(tmp_path / "table.db")

        lock, limited, turns = Lock(), ExitStack(), ["the first batch"]

        def limit_once(batch: pa.RecordBatch) -> pa.RecordBatch:
            """A preflight has looked at the topic before the first row comes."""
            with lock:
                if turns:
                    turns.pop()
                    limited.enter_context(harness.refusing())
            return batch

        def run() -> None:
            sinks = {"table": FakeSink(table, "2pc", "append"), "topic": harness.new_sink()}
            store, register = tmp_path / "snapshots", FileRegister(tmp_path / "register")
            built = Graph("two", parallelism=2)
            tables = [pa.Table.from_batches([batch_of(ROWS[n::2])]) for n in (0, 1)]
            rows = built.source("rows", TableSource(tables, 10)).map("limits", limit_once)
            rows.sink("out", Sinks(sinks))
            Job(built, LocalSnapshotStore(store), register, settings=OFTEN).run()

        with limited, pytest.raises(RowError, match="Nothing is decided"):
            run()
        assert (list(read(table)), list(harness.read())) == ([], [])
        run()
        assert (sorted(read(table)), sorted(harness.read())) == (ROWS, ROWS)
        table.close()
