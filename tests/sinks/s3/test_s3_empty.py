"""Whether a folder is empty: what is the sink's own, wherever it lies, is no data."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest

from abs_clients.s3.objects import Objects
from abs_core.contracts import Task
from abs_core.errors import SchemaError
from abs_services import S3Service
from abs_sinks.s3 import S3Options, S3Sink
from abs_testing.harness import SCHEMA

pytestmark = pytest.mark.services


@pytest.mark.parametrize("state", [None, "data/_state/of/mine", "aside", "data"])
def test_a_folder_with_nothing_but_the_sinks_own_state_is_empty(
    store: S3Service, given: Mapping[str, str], prefix: str, state: str | None
) -> None:
    root = f"s3://{store.bucket}/{prefix}"
    where = {} if state is None else {"statepath": f"{root}/{state}"}
    options = S3Options.parse({**given, "path": f"{root}/data", **where})
    sink, objects = S3Sink(options, SCHEMA), Objects(options.bucket)
    assert sink.is_empty()
    if state != "data":
        objects.put(options.state.key("register", "job.json"), b"{}")
        assert sink.is_empty()
    objects.put(f"{prefix}/data/part-0.parquet", b"rows")
    assert not sink.is_empty()


@pytest.mark.parametrize("protocol", ["2pc", "wal", "idempotent"])
def test_rows_without_columns_are_refused(protocol: str) -> None:
    options = S3Options.parse({"path": "s3://bucket/data", "protocol": protocol})
    task = Task("0" * 16, "job", 1, 0, 0, "a" * 12)
    with pytest.raises(SchemaError, match="have no columns"):
        S3Sink(options, pa.schema([])).writer(task)
