"""Spark's own SQL changes a table between a task and its decision, or between decision and commit.

After each change the epoch is in the table once, or it was refused by name: before the decision, or
with the decision kept until the change is undone. Spark then sees each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from abs_core.errors import AbsError
from abs_testing.engine import Run
from tests.sinks.iceberg.harness import TableHarness, catalog_in
from tests.sinks.lake.job import Job
from tests.spark.spark_sql import SparkSql

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]

Shape = Callable[[pa.RecordBatch], pa.RecordBatch]


def same(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def with_column(name: str, kind: pa.DataType) -> Shape:
    """The input with this column as the table has it now."""

    def shaped(rows: pa.RecordBatch) -> pa.RecordBatch:
        place = rows.schema.get_field_index(name)
        if pa.types.is_struct(kind):
            values = [{"a": number} for number in rows["id"].to_pylist()]
            return rows.set_column(place, name, pa.array(values, kind))
        return rows.set_column(place, name, rows["id"].cast(kind))

    return shaped


def without(name: str) -> Shape:
    return lambda rows: rows.drop_columns([name])


def renamed(old: str, new: str) -> Shape:
    return lambda rows: rows.rename_columns([new if n == old else n for n in rows.schema.names])


WIDER = with_column("n", pa.int64())
NESTED = with_column("s", pa.struct([("a", pa.int64()), ("b", pa.string())]))


@dataclass(frozen=True)
class Change:
    """What somebody does to a table.

    Args:
        sql: the statements; ``{t}`` is the table, ``{name}`` its name in the catalog.
        before: statements when the table has rows, before the change.
        gone: ids of rows that it takes away.
        texts: texts that it changes, or rows that it adds.
        early: why an epoch is refused if it comes between task and decision.
        late: why it is refused if it comes after the decision.
        undo: statements that let the refused epoch in.
        shape: of the input afterwards.
        version: format of the Iceberg table.
    """

    sql: Sequence[str]
    before: Sequence[str] = ()
    gone: frozenset[int] = frozenset()
    texts: Mapping[int, str] = field(default_factory=dict[int, str])
    early: str = ""
    late: str = ""
    undo: Sequence[str] = ()
    shape: Shape = same
    version: str = "2"


def properties(**given: str) -> str:
    pairs = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    return f"ALTER TABLE {{t}} SET TBLPROPERTIES ({pairs})"


def call(procedure: str, more: str = "") -> str:
    return f"CALL default.system.{procedure}(table => '{{name}}'{more})"


MERGE_ON_READ = [
    properties(**{f"write.{what}.mode": "merge-on-read" for what in ("delete", "update", "merge")})
]
MERGED = (
    "MERGE INTO {t} t USING (SELECT 2 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE "
    "WHEN NOT MATCHED THEN INSERT (id, text) VALUES (s.id, 'new')"
)
AGAIN = "(id BIGINT, text STRING, n INT, s STRUCT<a: BIGINT>)"
ALL = frozenset(range(4))

ICEBERG = {
    "a partition field": Change(["ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)"]),
    "other partition fields in version 1": Change(
        [
            "ALTER TABLE {t} DROP PARTITION FIELD truncate(2, text)",
            "ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)",
        ],
        ["ALTER TABLE {t} ADD PARTITION FIELD truncate(2, text)"],
        version="1",
    ),
    "a replaced partition field": Change(
        ["ALTER TABLE {t} REPLACE PARTITION FIELD b WITH truncate(3, text) AS tt"],
        ["ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id) AS b"],
    ),
    "version 1 to 2": Change([properties(**{"format-version": "2"})], version="1"),
    "version 1 to 2, partitioned": Change(
        [properties(**{"format-version": "2"}), "ALTER TABLE {t} DROP PARTITION FIELD tt"],
        ["ALTER TABLE {t} ADD PARTITION FIELD truncate(2, text) AS tt"],
        version="1",
    ),
    "version 3": Change(
        [properties(**{"format-version": "3"})], early="format version 3", late="format version 3"
    ),
    "an order": Change(
        [
            "ALTER TABLE {t} WRITE ORDERED BY id DESC",
            "ALTER TABLE {t} WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY text",
        ]
    ),
    "a branch that becomes main": Change(
        [
            "ALTER TABLE {t} CREATE BRANCH b",
            "ALTER TABLE {t} CREATE TAG release RETAIN 7 DAYS",
            "INSERT INTO {t}.branch_b (id, text) VALUES (90, 'f90')",
            "CALL default.system.fast_forward('{name}', 'main', 'b')",
        ],
        texts={90: "f90"},
    ),
    "statistics": Change(
        [call("compute_table_stats"), call("compute_partition_stats")],
        ["ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)"],
    ),
    "a wider column": Change(["ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT"], shape=WIDER),
    "a wider column that is a partition": Change(
        ["ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT"],
        [
            "ALTER TABLE {t} ADD PARTITION FIELD n",
            "ALTER TABLE {t} ADD PARTITION FIELD bucket(4, n)",
            "ALTER TABLE {t} ADD PARTITION FIELD truncate(3, n)",
        ],
        shape=WIDER,
    ),
    "a part of a struct": Change(["ALTER TABLE {t} ADD COLUMN s.b STRING"], shape=NESTED),
    "another name": Change(["ALTER TABLE {t} RENAME COLUMN n TO m"], shape=renamed("n", "m")),
    "another order of columns": Change(["ALTER TABLE {t} ALTER COLUMN text FIRST"]),
    "no column": Change(
        ["ALTER TABLE {t} DROP COLUMN n"], early="n was dropped", shape=without("n")
    ),
    "another column of the name": Change(
        ["ALTER TABLE {t} DROP COLUMN n", "ALTER TABLE {t} ADD COLUMN n INT"],
        early="n was dropped",
    ),
    "deleted rows": Change(["DELETE FROM {t} WHERE id = 0"], MERGE_ON_READ, gone=frozenset({0})),
    "updated rows": Change(
        ["UPDATE {t} SET text = 'u' WHERE id IN (1, 3)"], MERGE_ON_READ, texts={1: "u", 3: "u"}
    ),
    "merged rows": Change([MERGED], MERGE_ON_READ, gone=frozenset({2})),
    "compacted files": Change(
        [
            call("rewrite_data_files", ", options => map('min-input-files', '2')"),
            call("rewrite_position_delete_files", ", options => map('rewrite-all', 'true')"),
            call("rewrite_manifests"),
            call("expire_snapshots", ", older_than => TIMESTAMP '9999-01-01 00:00:00'"),
        ],
        [*MERGE_ON_READ, "DELETE FROM {t} WHERE id = 0"],
        gone=frozenset({0}),
    ),
    "expired metadata": Change(
        [
            "ALTER TABLE {t} DROP PARTITION FIELD b",
            call(
                "expire_snapshots",
                ", older_than => TIMESTAMP '9999-01-01 00:00:00', clean_expired_metadata => true",
            ),
        ],
        ["ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id) AS b"],
        early="lost the partition fields b",
        late="forgotten the partition fields b",
        undo=["ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id) AS b"],
    ),
    "overwritten rows": Change(
        ["INSERT OVERWRITE {t} SELECT * FROM {t} WHERE id > 1"], gone=frozenset({0, 1})
    ),
    "no rows": Change(["TRUNCATE TABLE {t}"], gone=ALL),
    "a replaced table": Change(
        [f"CREATE OR REPLACE TABLE {{t}} {AGAIN} USING iceberg"],
        gone=ALL,
        early="no longer has the 4 rows",
        late="no longer has the 4 rows",
    ),
    "a broken property": Change(
        [properties(**{"commit.manifest.min-count-to-merge": "many"})],
        early="A property of the table cannot be used",
        late="A property of the table cannot be used",
        undo=["ALTER TABLE {t} UNSET TBLPROPERTIES ('commit.manifest.min-count-to-merge')"],
    ),
    "settings": Change(
        [
            properties(
                **{
                    "write.metadata.compression-codec": "gzip",
                    "write.avro.compression-codec": "zstd",
                    "write.metadata.delete-after-commit.enabled": "true",
                    "write.metadata.previous-versions-max": "1",
                    "write.metadata.metrics.default": "none",
                    "write.object-storage.enabled": "true",
                    "write.distribution-mode": "hash",
                }
            )
        ]
    ),
}

V2_CHECKPOINT = properties(**{"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "2"})
DELTA = {
    "a constraint": Change(
        ["ALTER TABLE {t} ADD CONSTRAINT small CHECK (id < 100)"],
        early="constraint small",
        late="constraint small",
        undo=["ALTER TABLE {t} DROP CONSTRAINT small"],
    ),
    "column mapping": Change(
        [
            properties(
                **{
                    "delta.columnMapping.mode": "name",
                    "delta.minReaderVersion": "2",
                    "delta.minWriterVersion": "5",
                }
            )
        ],
        early="column mapping",
        late="column mapping",
    ),
    "a wider type": Change(
        [
            properties(**{"delta.enableTypeWidening": "true"}),
            "ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT",
        ],
        early="typeWidening|type widening",
        late="typeWidening|type widening",
    ),
    # By its path it keeps its id, its transactions, and its rows.
    "a replaced table": Change([f"CREATE OR REPLACE TABLE {{t}} {AGAIN} USING delta"]),
    "an older state": Change(["RESTORE TABLE {t} TO VERSION AS OF 2"]),
    "compacted files": Change(["OPTIMIZE {t}", "VACUUM {t} RETAIN 0 HOURS"]),
    "deleted rows": Change(
        ["DELETE FROM {t} WHERE id = 0"],
        [properties(**{"delta.enableDeletionVectors": "true"})],
        gone=frozenset({0}),
    ),
    "rows deleted by the first vector": Change(
        [
            properties(**{"delta.enableDeletionVectors": "true"}),
            "DELETE FROM {t} WHERE id = 0",
            "REORG TABLE {t} APPLY (PURGE)",
        ],
        gone=frozenset({0}),
    ),
    "updated rows": Change(
        ["UPDATE {t} SET text = 'u' WHERE id IN (1, 3)"], texts={1: "u", 3: "u"}
    ),
    "merged rows": Change([MERGED], gone=frozenset({2})),
    "checkpoints of version 2": Change(
        [V2_CHECKPOINT, *(["INSERT INTO {t} (id, text) VALUES (90, 'f90')"]), "OPTIMIZE {t}"],
        texts={90: "f90"},
    ),
    "row tracking": Change(
        [properties(**{"delta.enableRowTracking": "true"})],
        early="rowTracking",
        late="rowTracking",
    ),
    "clusters": Change(["ALTER TABLE {t} CLUSTER BY (id)"], early="clustering", late="clustering"),
    "times in commits": Change(
        [properties(**{"delta.enableInCommitTimestamps": "true"})],
        early="inCommitTimestamp",
        late="inCommitTimestamp",
    ),
    "a column": Change(["ALTER TABLE {t} ADD COLUMNS (more INT COMMENT 'm')"]),
    "a part of a struct": Change(["ALTER TABLE {t} ADD COLUMNS (s.b STRING)"], shape=NESTED),
    "another order of columns": Change(["ALTER TABLE {t} ALTER COLUMN text FIRST"]),
    "overwritten rows": Change(
        ["INSERT OVERWRITE {t} SELECT * FROM {t} WHERE id > 1"], gone=frozenset({0, 1})
    ),
    "no rows": Change(["DELETE FROM {t}"], gone=ALL),  # it has no TRUNCATE for a path
    "transactions that are forgotten": Change(
        [properties(**{"delta.setTransactionRetentionDuration": "interval 1 day"})],
        early="forgets the transactions",
        late="forgets the transactions",
        undo=["ALTER TABLE {t} UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')"],
    ),
    "change data": Change(
        [properties(**{"delta.enableChangeDataFeed": "true"}), "DELETE FROM {t} WHERE id = 0"],
        gone=frozenset({0}),
    ),
}
CASES = [("iceberg", name) for name in ICEBERG] + [("delta", name) for name in DELTA]
CHANGES = {"iceberg": ICEBERG, "delta": DELTA}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return catalog_in(tmp_path_factory.mktemp("catalog"))


@pytest.fixture(scope="module")
def sql(catalog: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSql]:
    place = Path(catalog["uri"].removeprefix("sqlite:///"))
    with SparkSql(place, tmp_path_factory.mktemp("sql")) as spark:
        yield spark


class World:
    """A table with the rows 0 to 3, of two epochs."""

    def __init__(
        self, kind: str, folder: Path, change: Change, catalog: dict[str, str], sql: SparkSql
    ) -> None:
        self.change, self.sql = change, sql
        self.job = Job(kind, folder)
        if kind == "iceberg":
            self.job.harness = TableHarness(folder, None, {}, catalog=catalog)
            self.job.options = self.job.harness.options
            version = {"format-version": change.version}
            self.job.harness.foreign.create_table(
                self.job.harness.name, rows().schema, properties=version
            )
            self.name = self.job.harness.name
            self.table = f"default.{self.name}"
        else:
            self.name, self.table = "", f"delta.`{self.job.path}`"
        self.job.epoch(0, rows(0, 1))
        self.job.epoch(1, rows(2, 3))
        self.run(change.before)

    def run(self, statements: Sequence[str]) -> list[dict[str, Any]]:
        return self.sql.run(*(s.format(t=self.table, name=self.name) for s in statements))

    def changed(self) -> None:
        self.run(self.change.sql)

    def holds(self, *ids: int) -> None:
        """Each reader sees these rows, and what the change left of the others."""
        there = {n: f"t{n}" for n in range(4) if n not in self.change.gone}
        due = there | dict(self.change.texts) | {n: f"t{n}" for n in ids}
        read = self.run(["SELECT id, text FROM {t}"])
        assert sorted((row["id"], row["text"]) for row in read) == sorted(due.items())
        for number in ids:  # by statistics and partitions
            [row] = self.run([f"SELECT text FROM {{t}} WHERE id = {number}"])
            assert row["text"] == f"t{number}"


def rows(*ids: int) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "id": pa.array(ids, pa.int64()),
            "text": pa.array([f"t{i}" for i in ids], pa.string()),
            "n": pa.array(ids, pa.int32()),
            "s": pa.array([{"a": i} for i in ids], pa.struct([("a", pa.int64())])),
        }
    )


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_change_after_the_decision_loses_and_doubles_nothing(
    kind: str, name: str, tmp_path: Path, catalog: dict[str, str], sql: SparkSql
) -> None:
    change = CHANGES[kind][name]
    world = World(kind, tmp_path, change, catalog, sql)
    world.job.decided(2, rows(4, 5))
    world.changed()
    after = change.shape(rows(6, 7))
    if change.late:
        with pytest.raises(AbsError, match=change.late):
            world.job.epoch(3, after)
        world.holds()
        if not change.undo:
            return
        world.run(change.undo)
    world.job.epoch(3, after)
    world.holds(4, 5, 6, 7)


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_change_before_the_decision_is_refused_by_name_or_changes_nothing(
    kind: str, name: str, tmp_path: Path, catalog: dict[str, str], sql: SparkSql
) -> None:
    change = CHANGES[kind][name]
    world = World(kind, tmp_path, change, catalog, sql)
    run = Run(world.job.sink(world.job.options, rows().schema), "job")
    attempt = run.attempt(2, 0)
    attempt.writer.write(rows(4, 5))
    attempt._rows += 2
    made = attempt.pre_commit()
    world.changed()
    shape: Shape = same
    if change.early:
        with pytest.raises(AbsError, match=change.early):
            run.commit(2, [made])
        assert not run.state().open
        world.holds()
        shape = change.shape
        if change.late and not change.undo:
            return
        world.run(change.undo)
        world.job.epoch(2, shape(rows(4, 5)))
    else:
        run.commit(2, [made])
    world.job.epoch(3, change.shape(rows(6, 7)))
    world.holds(4, 5, 6, 7)
