"""A table in PostgreSQL, a topic and a table of the lake, which one query writes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from tests.kit.kafka import TopicHarness
from tests.sinks.lake.test_lake_readers import duckdb_at
from tests.spark.jobs.stream_files import Job
from tests.spark.lake import Lake
from tests.spark.world import World

FILES, ROWS = 4, 40


def expected(files: int = FILES) -> Counter[int]:
    return Counter(number * 1000 + row for number in range(files) for row in range(ROWS))


@dataclass
class Three:
    """A table in PostgreSQL, a topic, and a table of the lake.

    Args:
        files: makes input files, and has the database and its table.
    """

    files: World
    kafka: TopicHarness
    lake: Lake

    def job(self, **more: Any) -> Job:
        kafka = {
            "kafka.bootstrap.servers": self.kafka.bootstrap,
            "topic": self.kafka.topic,
            "registertopic": self.kafka.options.registertopic,
        }
        select = ["cast(id as string) as key", "cast(id as string) as value"]
        part = [] if self.lake.hidden else ["cast(id % 2 as string) as part"]
        lake = {**self.lake.given, **({"partitionby": "part"} if part else {})}
        sinks: list[dict[str, Any]] = [
            {"format": "abs-postgres", "name": "rows", "options": {"dbtable": "t"}},
            {"format": "abs-kafka", "name": "events", "options": kafka, "select": select},
            {
                "format": self.lake.format,
                "name": "lake",
                "options": lake,
                "select": ["*", *part],
            },
        ]
        given = {"options": {"job": "job"}, "sinks": sinks, "scramble": True, **more}
        return replace(self.files.job, **given)

    def ids(self) -> dict[str, Counter[int]]:
        """What readers see; the table's by its own library and by DuckDB."""
        duckdb = duckdb_at(self.lake.kind, self.lake.place, "id")
        return {
            "postgresql": Counter(row[0] for row in self.files.rows()),
            "kafka": Counter(int(value) for _, value in self.kafka.read()),
            "lake": self.lake.ids(),
            "duckdb": Counter(row["id"] for row in duckdb),
        }

    def holds(self, wanted: Counter[int]) -> None:
        for reader, found in self.ids().items():
            missing, extra = wanted - found, found - wanted
            assert not missing, f"{reader}: {missing.total()} rows are missing: {list(missing)[:3]}"
            assert not extra, f"{reader}: {extra.total()} rows are too many: {list(extra)[:3]}"
        assert self.files.left_behind() == []
        assert self.kafka.leftovers("job") == []
        assert self.lake.staged() == []
        assert self.lake.wrong_partitions() == []
