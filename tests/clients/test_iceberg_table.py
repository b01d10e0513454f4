"""The behaviours of pyiceberg that the sink leans on; a new version that changes one fails here."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.transforms import BucketTransform, DayTransform, UnknownTransform

from abs_clients.iceberg.catalogs import _Parsed
from abs_clients.iceberg.table import IcebergSnapshot, IcebergTable, _slim
from abs_clients.s3.server import Server
from abs_core.errors import ConfigError, OptionError, RefusedError, SchemaError, UnavailableError
from abs_sinks.iceberg import IcebergOptions
from abs_sinks.lake.table import AddedFile, Mark
from tests.kit.http import serving
from tests.planted import planted
from tests.sinks.iceberg.harness import catalog_in

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each metadata file that the library has parsed."""
    files = list[str]()
    parse = FromInputFile.table_metadata

    def counted(file: Any, *given: Any) -> TableMetadata:
        files.append(file.location)
        return parse(file, *given)

    monkeypatch.setattr(FromInputFile, "table_metadata", counted)
    return files


@pytest.fixture
def table(tmp_path: Path) -> IcebergTable:
    given = tuple(sorted(catalog_in(tmp_path).items()))
    table = IcebergTable("default", "db.events", given)
    table.create(SCHEMA, ["day"])
    return table


def snapshot(table: IcebergTable) -> IcebergSnapshot:
    found = table.load()
    assert found is not None
    return found


def foreign(table: IcebergTable) -> Table:
    return load_catalog("default", **dict(table.given)).load_table("db.events")


def file_of(table: IcebergTable, folder: str, name: str, day: str | None, *ids: int) -> AddedFile:
    """A file with these ids in a folder of the table."""
    path = Path(snapshot(table).location.removeprefix("file://"), "data", folder, name)
    path.parent.mkdir(exist_ok=True, parents=True)
    pq.write_table(pa.table({"id": ids, "day": [day] * len(ids)}, schema=SCHEMA), path)
    return AddedFile(f"{folder}/{name}", path.stat().st_size, len(ids), {"day": day}, "")


def ids(table: IcebergTable) -> list[int]:
    return sorted(foreign(table).scan().to_arrow()["id"].to_pylist())


def mark(version: int, application: str = "abs-a-0") -> Mark:
    return Mark(application, version, {"abs.epoch": str(version)})


def test_of_two_commits_from_one_state_the_second_does_nothing(table: IcebergTable) -> None:
    first, second, third = snapshot(table), snapshot(table), snapshot(table)
    file = file_of(table, "day=a", "1.parquet", "a", 1)
    assert first.add([file], mark(1))
    assert not second.add([file], mark(1)), "the same epoch"
    assert not third.add([file_of(table, "day=a", "2.parquet", "a", 2)], mark(1, "abs-b-0"))
    assert ids(table) == [1]


def test_the_library_alone_appends_a_stale_commit_again(table: IcebergTable) -> None:
    """Why its retries are off, and why nobody commits from a state that was not looked at."""
    stale = foreign(table)
    rows = pa.table({"id": [1], "day": ["a"]}, schema=SCHEMA)
    foreign(table).append(rows)
    stale.append(rows)
    assert ids(table) == [1, 1]
    file = file_of(table, "day=a", "2.parquet", "a", 2)
    for _ in range(2):
        assert snapshot(table).add([file], mark(1)), "from a fresh state nothing hinders it"
    assert ids(table) == [1, 1, 2, 2]


def test_the_number_of_retries_is_not_written_to_the_table(table: IcebergTable) -> None:
    assert snapshot(table).add([file_of(table, "day=a", "1.parquet", "a", 1)], mark(1))
    assert "commit.retry.num-retries" not in foreign(table).properties


def test_the_mark_comes_with_the_files_and_outlives_the_expiry_of_snapshots(
    table: IcebergTable,
) -> None:
    before = snapshot(table)
    assert before.version_of("abs-a-0") is None
    assert before.add([file_of(table, "day=a", "1.parquet", "a", 1)], mark((1 << 32) + 7))
    found = foreign(table)
    added = found.current_snapshot()
    assert added is not None
    assert added.summary is not None
    assert added.summary["abs.epoch"] == str((1 << 32) + 7)
    found.append(pa.table({"id": [2], "day": ["b"]}, schema=SCHEMA))
    found.maintenance.expire_snapshots().by_id(added.snapshot_id).commit()
    assert snapshot(table).version_of("abs-a-0") == (1 << 32) + 7
    assert ids(table) == [1, 2]


def test_a_commit_without_files_stops_one_that_is_still_under_way(table: IcebergTable) -> None:
    late = snapshot(table)
    assert snapshot(table).add([], mark(1))
    assert not late.add([file_of(table, "day=a", "1.parquet", "a", 1)], mark(1))
    assert ids(table) == []


@pytest.mark.parametrize(
    ("folder", "day"),
    [
        ("day=a%3Db%2Fc%25 é~@!x", "a=b/c% é~@!x"),
        ("day=__HIVE_DEFAULT_PARTITION__", None),
        ("day=long", "x" * 100),
    ],
)
def test_a_path_is_taken_as_it_is_and_partitions_by_the_footers(
    table: IcebergTable, folder: str, day: str | None
) -> None:
    assert snapshot(table).add([file_of(table, folder, "p.j@t!-1.parquet", day, 1, 2)], mark(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert foreign(table).scan().to_arrow().to_pydict() == {"id": [1, 2], "day": [day] * 2}
    parts = foreign(table).inspect.partitions()["partition"].to_pylist()
    assert parts == [{"day": day}]


def test_a_table_that_is_created_again_has_another_id(table: IcebergTable) -> None:
    old = snapshot(table).id
    table.create(SCHEMA, [])  # somebody else was first: nothing happens
    assert snapshot(table).id == old
    load_catalog("default", **dict(table.given)).drop_table("db.events")
    assert table.load() is None
    table.create(SCHEMA, [])
    assert snapshot(table).id != old


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("commit.manifest.min-count-to-merge", "many", "min-count-to-merge to an integer"),
        ("write.metadata.delete-after-commit.enabled", "perhaps", "enabled to a boolean"),
        ("write.avro.compression-codec", "lzo", "compression-codec is lzo"),
        ("write.metadata.path", "file:///elsewhere#1", "has '#'"),
    ],
)
def test_a_property_at_which_a_commit_would_fail_is_refused_before(
    name: str, value: str, why: str, table: IcebergTable
) -> None:
    found = snapshot(table)
    assert not found.problems()
    found._table.metadata.properties[name] = value
    (problem,) = found.problems()
    assert why in problem[0]


def test_a_metrics_mode_that_does_not_exist_is_an_error_of_the_configuration(
    table: IcebergTable,
) -> None:
    found = snapshot(table)
    found._table.metadata.properties["write.metadata.metrics.column.id"] = "most"
    with pytest.raises(ConfigError, match="Unsupported metrics mode: most"):
        found.entries()


@pytest.mark.parametrize(
    ("transform", "source", "told"),
    [
        (UnknownTransform("zorder[2]"), 1, "zorder[2](id)"),
        (DayTransform(), 1, "day(id)"),
        (BucketTransform(4), 99, "bucket[4]()"),
    ],
)
def test_a_partition_that_is_not_computed_is_refused_by_name(
    transform: Any, source: int, told: str, table: IcebergTable
) -> None:
    found = snapshot(table)
    now = found._table.metadata
    spec = PartitionSpec(
        PartitionField(source, 1000, transform, "part"), spec_id=now.default_spec_id
    )
    now.partition_specs[:] = [spec]
    (problem,) = found.problems()
    assert f"partitioned by {told}, which pyiceberg does not compute" in problem[0]


def test_manifests_of_a_table_that_was_made_here_are_merged(table: IcebergTable) -> None:
    with foreign(table).transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "4"})
    for number in range(1, 11):
        assert snapshot(table).add(
            [file_of(table, "day=a", f"{number}.parquet", "a", number)], mark(number)
        )
    found = foreign(table)
    latest = found.current_snapshot()
    assert latest is not None
    assert len(latest.manifests(found.io)) <= 4
    assert ids(table) == list(range(1, 11))
    assert snapshot(table).version_of("abs-a-0") == 10


def test_a_type_that_iceberg_does_not_have_is_refused(table: IcebergTable) -> None:
    other = IcebergTable("default", "db.other", table.given)
    with pytest.raises(SchemaError, match="Iceberg has no type"):
        other.create(pa.schema([("d", pa.duration("us"))]), [])
    assert other.load() is None


def test_a_catalog_that_cannot_be_opened_is_refused_without_its_secrets() -> None:
    other = IcebergTable("nowhere", "db.t", (("token", "secret"), ("type", "none")))
    with pytest.raises(ConfigError) as refused:
        other.load()
    assert "secret" not in str(refused.value) + repr(other)


@pytest.mark.parametrize("kind", ["hadoop", "Hadoop"])
def test_a_catalog_without_compare_and_set_is_refused_by_name(kind: str) -> None:
    with pytest.raises(OptionError, match="Hadoop catalog does not compare and set"):
        IcebergOptions.parse({"table": "db.t", "catalog.type": kind, "catalog.warehouse": "/w"})


@pytest.mark.parametrize(
    "given",
    [
        {"type": "in-memory"},
        {"py-catalog-impl": "pyiceberg.catalog.memory.InMemoryCatalog"},
    ],
)
def test_a_catalog_of_which_nothing_is_known_is_refused(given: dict[str, str]) -> None:
    other = IcebergTable("other", "db.t", tuple(given.items()))
    with pytest.raises(ConfigError, match="not known that it compares and sets"):
        other.load()


class Elsewhere(IcebergSnapshot):
    """A table that is at another place."""

    def __init__(self, table: Table, place: str) -> None:
        super().__init__(table, "db.events")
        self._place = place

    @property
    def location(self) -> str:
        return self._place


def test_a_table_elsewhere_than_in_s3_or_a_folder_is_refused(table: IcebergTable) -> None:
    catalog = {f"catalog.{name}": value for name, value in table.given}
    options = IcebergOptions.parse({"table": "db.events", **catalog})
    there_now = snapshot(table)._table
    for place, there in [
        ("s3://bucket/t", ("bucket", "t/data/")),
        ("s3a://bucket/t", ("bucket", "t/data/")),
        ("file:///w/t", ("", "")),
        ("/w/t", ("", "")),
    ]:
        known = options.place(Elsewhere(there_now, place))
        assert known is not None
        path = known.options.path
        assert (path.bucket, path.folder) == there
    for place in ("gs://b/t", "abfss://b/t", "hdfs://b/t"):
        with pytest.raises(ConfigError, match=r"The table db\.events is at"):
            options.place(Elsewhere(there_now, place))


def test_a_table_of_format_version_3_is_refused(table: IcebergTable, tmp_path: Path) -> None:
    """Another engine has made it: this library writes none."""
    found = foreign(table)
    [latest] = tmp_path.rglob("*.metadata.json")
    told = json.loads(latest.read_text()) | {"format-version": 3, "next-row-id": 0}
    latest.write_text(json.dumps(told))
    assert foreign(table).format_version == 3
    (problem,) = snapshot(table).problems()
    assert "format version 3" in problem[0]
    assert found.format_version == 2


def test_a_catalog_that_vends_credentials_tells_the_store_too(table: IcebergTable) -> None:
    """A REST catalog's answer has them in the table's configuration; the options go before."""
    found = snapshot(table)
    assert found.server(table) is None
    told = {"s3.access-key-id": "KEY", "s3.secret-access-key": "SECRET", "client.region": "r"}
    found._table.io.properties.update(told, **{"s3.endpoint": "http://store"})
    assert found.server(table) == Server("http://store", "r", True, 60.0, table)
    given = Server("http://other", "x", True)
    other = IcebergTable("default", "db.events", table.given, given)
    assert found.server(other) == Server("http://other", "x", True, 60.0, other)
    assert "SECRET" not in repr(found.server(table))
    with pytest.raises(
        RefusedError, match=r"vends no credentials for the table db\.events any more"
    ):
        table.vend()


@pytest.mark.parametrize(
    "told", [{"s3.signer": "S3V4RestSigner"}, {"s3.remote-signing-enabled": "true"}]
)
def test_a_catalog_that_signs_requests_is_refused_by_name(
    told: dict[str, str], table: IcebergTable
) -> None:
    found = snapshot(table)
    found._table.config = {"s3.remote-signing-enabled": "false"}
    assert not found.problems()
    found._table.config = told
    (problem,) = found.problems()
    assert "s3.remote-signing-enabled" in problem[0]


def test_a_rest_catalog_that_does_not_answer_is_given_up_and_asked_for_credentials() -> None:
    asked, ended = list[Message](), Event()

    class Silent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers)
            if not self.path.startswith("/v1/config"):
                ended.wait(30)
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"defaults": {}, "overrides": {}}')

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Silent)) as server:
        given = (("type", "rest"), ("uri", f"http://127.0.0.1:{server.server_port}"))
        other = IcebergTable("silent", "db.t", given, Server(timeout=0.5))
        try:
            with pytest.raises(UnavailableError, match=r"db\.t: ReadTimeout"):
                other.load()
        finally:
            ended.set()
    assert asked[-1]["X-Iceberg-Access-Delegation"] == "vended-credentials"


def test_a_commit_starts_from_heads_alone_and_keeps_every_snapshot_tag_and_log(
    table: IcebergTable,
) -> None:
    """A commit copies what it starts from again and again: its cost would grow with the snapshots."""
    for number in (1, 2, 3, 4):
        file = file_of(table, "day=a", f"{number}.parquet", "a", number)
        assert snapshot(table).add([file], mark(number))
        if number == 1:
            [first] = foreign(table).snapshots()
            foreign(table).manage_snapshots().create_tag(first.snapshot_id, "first").commit()
    assert first is not None
    slim = _slim(foreign(table).metadata)
    assert [each.snapshot_id for each in slim.snapshots] == [
        first.snapshot_id,
        slim.current_snapshot_id,
    ]
    found = foreign(table)
    assert len(found.snapshots()) == len(found.history()) == 4
    assert len(list(ancestors_of(found.current_snapshot(), found.metadata))) == 4
    assert len(found.metadata.metadata_log) == 5
    assert found.scan(snapshot_id=first.snapshot_id).to_arrow()["id"].to_pylist() == [1]
    assert found.refs()["first"].snapshot_id == first.snapshot_id
    current = found.current_snapshot()
    assert current is not None
    assert current.summary is not None
    assert current.summary["total-records"] == "4"


def test_a_table_that_asks_for_it_loses_its_old_metadata_files(
    table: IcebergTable, tmp_path: Path
) -> None:
    keys = ("delete-after-commit.enabled", "true"), ("previous-versions-max", "2")
    with foreign(table).transaction() as change:
        change.set_properties({f"write.metadata.{name}": value for name, value in keys})
    for number in range(1, 7):
        file = file_of(table, "day=a", f"{number}.parquet", "a", number)
        assert snapshot(table).add([file], mark(number))
    assert len(list(tmp_path.rglob("*.metadata.json"))) <= 4


_WITHOUT_SQLALCHEMY = """\
import sys
from abs_clients.iceberg.table import IcebergTable
from abs_core.errors import ConfigError

assert "sqlalchemy" not in sys.modules, "a REST catalog loads it, too"
if sys.argv[1] == "without":
    sys.modules["sqlalchemy"] = None
where = (("type", "sql"), ("uri", f"sqlite:///{sys.argv[2]}/c.db"), ("warehouse", sys.argv[2]))
try:
    print(IcebergTable("prod", "db.t", where).load())
except ConfigError as error:
    print(error)
"""


def test_an_sql_catalog_names_the_extra_that_it_needs_and_opens_with_it(tmp_path: Path) -> None:
    """The extra ``iceberg`` does without sqlalchemy."""

    def opened(how: str) -> str:
        run = [sys.executable, "-c", _WITHOUT_SQLALCHEMY, how, str(tmp_path)]
        return subprocess.run(run, capture_output=True, text=True, check=True).stdout

    assert "pip install 'abs-sinks[iceberg-sql]', if its type is sql" in opened("without")
    assert opened("with") == "None\n"


def test_a_commit_parses_no_metadata_but_those_of_others(
    table: IcebergTable, parsed: list[str]
) -> None:
    """They grow with each snapshot: parsed for each look, they made a trend."""
    snapshot(table)
    parsed.clear()
    for version in range(1, 4):
        file = file_of(table, "day=a", f"{version}.parquet", "a", version)
        assert snapshot(table).add([file], mark(version))
        assert snapshot(table).version_of("abs-a-0") == version
    assert parsed == []
    foreign(table).append(pa.table({"id": [9], "day": ["a"]}, schema=SCHEMA))
    newest = foreign(table).metadata_location
    parsed.clear()
    for _ in range(2):
        assert snapshot(table).version_of("abs-a-0") == 3
    assert parsed == [newest]
    assert ids(table) == [1, 2, 3, 9]


@pytest.mark.parametrize("version", ["1", "2"])
def test_metadata_that_are_kept_are_those_of_the_file(table: IcebergTable, version: str) -> None:
    catalog = load_catalog("default", **dict(table.given))
    catalog.drop_table("db.events")
    catalog.create_table("db.events", SCHEMA, properties={"format-version": version})
    table.widen(pa.schema([("more", pa.list_(pa.int32()))]))
    assert snapshot(table)._table.metadata == foreign(table).metadata
    for number in range(1, 4):
        file = file_of(table, "x", f"{number}.parquet", "a", number)
        column = pa.schema([(f"c{number}", pa.decimal128(9, 2))])
        assert snapshot(table).add([file], mark(number), column)
        assert snapshot(table)._table.metadata == foreign(table).metadata


def test_metadata_whose_file_is_gone_are_not_used(table: IcebergTable) -> None:
    """As of a bucket that was restored, and a catalog that was not."""
    file = Path(snapshot(table)._table.metadata_location.removeprefix("file://"))
    there = file.read_bytes()
    snapshot(table)
    file.unlink()
    with pytest.raises(RefusedError, match="A file of the table is gone"):
        table.load()
    file.write_bytes(there.replace(b'"last-column-id":2', b'"last-column-id":12'))
    assert snapshot(table)._table.metadata.last_column_id == 12


def test_a_planted_state_of_before_is_found(table: IcebergTable, parsed: list[str]) -> None:
    read = _Parsed.__call__

    def first_one(self: _Parsed, row: Any) -> Table:
        kept = self.states.get(("db", "events"))
        if kept is None:
            return read(self, row)
        return Table(
            ("db", "events"),
            kept.metadata,
            kept.place,
            self._catalog._load_file_io(),
            self._catalog,
        )

    with planted((_Parsed, "__call__", first_one)):
        test_a_commit_parses_no_metadata_but_those_of_others(table, parsed)
