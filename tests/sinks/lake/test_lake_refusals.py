"""What tables cannot be written with is refused by name, before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from abs_clients.iceberg.table import IcebergTable
from abs_core.errors import AbsError, OptionError
from abs_core.model import Committable, HandleName, Severity
from abs_core.sinkmap import STRIDE
from abs_services import S3Service
from abs_sinks.delta import DeltaOptions, DeltaSink
from abs_sinks.delta.door import FORMAT as DELTA
from abs_sinks.iceberg import IcebergOptions
from abs_sinks.iceberg.door import FORMAT as ICEBERG
from abs_sinks.lake.committer import mark_of
from abs_spark.open_sinks import replacing
from abs_testing import SCHEMA
from tests.planted import planted
from tests.sinks.s3.proxy import Fault, Plan, running

TABLES: dict[str, tuple[Any, dict[str, str]]] = {
    "delta": (DeltaOptions, {"path": "/nowhere/t"}),
    "iceberg": (IcebergOptions, {"table": "db.t"}),
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("given", "says", "remedy"),
    [
        ({"protocol": "wal"}, "no protocol wal", "table's own compaction"),
        ({"protocol": "idempotent"}, "no protocol idempotent", "use 2pc"),
        ({"wal": "/w"}, "option wal is not", "one commit of the table"),
        ({"write": "changes"}, "option write", "only adds rows"),
        ({"write": "upsert"}, "option write", "only adds rows"),
        ({"deadletter": "/d"}, "no place of its own for dead letters", "deadletter=sink:NAME"),
        ({"txnVersion": "7"}, "option txnVersion", "the epoch is the version"),
    ],
)
def test_an_option_that_a_table_cannot_have_is_refused_with_what_to_do(
    kind: str, given: dict[str, str], says: str, remedy: str
) -> None:
    options, place = TABLES[kind]
    with pytest.raises(OptionError, match=says) as refused:
        options.parse({**place, **given})
    assert remedy in str(refused.value)


@pytest.mark.parametrize("place", ["gs://b/t", "abfss://c@a/t", "hdfs://n/t", "relative/t"])
def test_a_delta_table_elsewhere_than_in_s3_or_a_folder_is_refused(place: str) -> None:
    with pytest.raises(OptionError, match="s3://bucket/prefix, or an absolute path"):
        DeltaOptions.parse({"path": place})


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_is_not_replaced_at_each_epoch(kind: str) -> None:
    options, place = TABLES[kind]
    door = DELTA if kind == "delta" else ICEBERG
    with pytest.raises(OptionError, match="cannot replace its content"):
        replacing(door, options.parse(place), "lake")


@pytest.mark.services
@pytest.mark.parametrize(("nth", "header"), [(1, "If-None-Match"), (2, "If-Match")])
def test_a_delta_table_on_a_store_that_ignores_conditions_is_refused(
    nth: int, header: str, store: S3Service, prefix: str
) -> None:
    store.start()
    with running(store.endpoint) as proxy:
        given = {"endpoint": proxy.endpoint, "region": store.region, "createtable": "true"}
        options = DeltaOptions.parse({**given, "path": f"s3://{store.bucket}/{prefix}"})
        proxy.plan = Plan("PutIf", Fault.LIED, skip=nth, answer=(200, b""))
        found = DeltaSink(options, SCHEMA).preflight("job")
        proxy.plan = None
        assert [f.severity.value for f in found] == ["error"]
        assert header in found[0].what
        assert options.address.load() is None, "no table was made"


def test_sinks_of_one_job_have_applications_of_their_own() -> None:
    """Else the second sink's rows in a table would count as those of the first, and be left out."""

    def application(*partitions: int) -> str:
        handles = [HandleName("a" * 16, "job", 1, 0, each, "b") for each in partitions]
        return mark_of([Committable(handle, 1, "d") for handle in handles]).application

    assert application(0, 7) == application(7)
    assert len({application(number * STRIDE + 3) for number in range(4)}) == 4
    # The embedded runtime's own sinks have theirs below it.
    assert len({application(number << 16) for number in range(4)}) == 4


NEW: dict[str, tuple[pa.Schema, dict[str, str]]] = {
    "well": (pa.schema({"a": pa.int64()}), {}),
    "no partition column": (pa.schema({"a": pa.int64()}), {"partitionby": "b"}),
    "all columns partition": (pa.schema({"a": pa.int64()}), {"partitionby": "a"}),
    "no type": (pa.schema({"a": pa.month_day_nano_interval()}), {}),
    "no type inside": (pa.schema({"a": pa.list_(pa.duration("us"))}), {}),
    "only nulls": (pa.schema({"a": pa.null()}), {}),
}
"""Input and options of a table that is to be made."""


def at(kind: str, folder: Path, **more: str) -> Any:
    """The options of a table that is not there; an Iceberg one's namespace is not there either."""
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/w"}
    properties = {f"catalog.{name}": value for name, value in catalog.items()}
    where = {"path": f"{folder}/t"} if kind == "delta" else {"table": "db.t", **properties}
    return TABLES[kind][0].parse({**where, "createtable": "true", **more})


def found_early_and_late(kind: str, options: Any, schema: pa.Schema) -> tuple[str, str]:
    """What the preflight says is wrong, and what the first use of the sink says; empty: nothing."""
    sink = (DELTA if kind == "delta" else ICEBERG).sink(options, schema)
    errors = [one.what for one in sink.preflight("j") if one.severity is Severity.ERROR]
    try:
        assert sink.target_id
    except AbsError as error:
        return "; ".join(errors), error.what
    return "; ".join(errors), ""


@pytest.mark.parametrize("namespace", [True, False])
@pytest.mark.parametrize("case", NEW)
@pytest.mark.parametrize("kind", TABLES)
def test_the_preflight_finds_whatever_the_making_of_a_table_refuses(
    kind: str, case: str, namespace: bool, tmp_path: Path
) -> None:
    schema, more = NEW[case]
    options = at(kind, tmp_path, **more)
    if namespace and kind == "iceberg":
        # The way out that the message names, by the catalog's own client.
        load_catalog("default", **dict(options.properties)).create_namespace("db")
    early, late = found_early_and_late(kind, options, schema)
    assert early == late
    assert (late == "") == (case == "well" and (namespace or kind == "delta"))


def test_a_check_that_does_not_look_for_the_namespace_is_found(tmp_path: Path) -> None:
    # The planted bug: the preflight as it was.
    with planted((IcebergTable, "check_may_create", lambda self, schema: None)):
        early, late = found_early_and_late("iceberg", at("iceberg", tmp_path), NEW["well"][0])
        assert "namespace does not exist" in late
        assert early
