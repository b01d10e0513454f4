"""What Spark's own clean-ups remove of an epoch that is not committed, with the shortest retention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest

from abs_clients.delta.log import DeltaSnapshot
from abs_clients.iceberg.table import IcebergSnapshot
from abs_core.errors import HandleLostError
from abs_services import S3Service
from abs_testing.case import JOB, LEFT, MORE, RIGHT, Case, raises
from abs_testing.cuts import Cut, Halted
from tests.sinks.lake.between import dies
from tests.sinks.lake.conftest import KINDS, in_bucket, in_folder
from tests.spark.tending import Tending

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(600)]

SNAPSHOTS = {"delta": DeltaSnapshot, "iceberg": IcebergSnapshot}


@pytest.mark.services
@pytest.mark.parametrize("kind", KINDS)
def test_uploads_of_epochs_that_are_not_committed_outlast_a_clean_up(
    kind: str, store: S3Service, prefix: str, tmp_path: Path
) -> None:
    """Before their decision and after it; a file that nobody names is removed beside them."""
    client = boto3.client("s3", endpoint_url=store.endpoint, region_name=store.region)

    def files() -> list[str]:
        found = client.list_objects_v2(Bucket=store.bucket, Prefix=prefix)["Contents"]
        return [each["Key"] for each in found if each["Key"].endswith(".parquet")]

    with in_bucket(kind, tmp_path, store, prefix)() as harness:
        case = Case(harness)
        case.run("before").epoch(0, MORE)
        case.halted(Cut("commit"), LEFT)
        raises(Halted, lambda: case.run("undecided", cut=Cut("inspect")).epoch(0, RIGHT))
        begun = [*harness.leftovers(JOB), *harness.leftovers("undecided")]
        assert len(begun) == 2
        [named] = files()
        source = {"Bucket": store.bucket, "Key": named}
        orphan = f"{named.rpartition('/')[0]}/orphan.parquet"
        client.copy_object(Bucket=store.bucket, Key=orphan, CopySource=source)
        with Tending(kind, given(harness), tmp_path / "tending", store.endpoint) as others:
            others.clean()
            # On S3 delta-spark may overwrite a commit of others: it has ended before there is one.
            ids = others.result()["ids"]
        assert sorted(ids) == sorted(id_ for id_, _ in MORE)
        assert files() == [named]
        assert [*harness.leftovers(JOB), *harness.leftovers("undecided")] == begun
        case.run().epoch(0, LEFT)
        case.run("undecided").epoch(0, RIGHT)
        case.holds((*LEFT, *MORE, *RIGHT), when="after a clean-up")


@pytest.mark.parametrize("kind", KINDS)
def test_a_completed_file_that_a_clean_up_removed_is_an_error_and_the_table_does_not_name_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_folder(kind, tmp_path)() as harness:
        case = Case(harness)
        case.run("before").epoch(0, MORE)
        with monkeypatch.context() as patch:
            dies(patch)
            with pytest.raises(KeyboardInterrupt):
                case.run().epoch(0, LEFT)
        [completed] = harness.leftovers(JOB)
        with Tending(kind, given(harness), tmp_path / "tending") as others:
            others.clean()
            assert harness.leftovers(JOB) == [], f"{completed} is there"
            raises(HandleLostError, lambda: case.run().epoch(0, LEFT))
            ids = others.result()["ids"]
        case.holds(MORE, when="after a file was lost")
    assert sorted(ids) == sorted(id_ for id_, _ in MORE)


def given(harness: Any) -> dict[str, str]:
    """What ``Tending`` asks of the table."""
    if hasattr(harness.options, "path"):
        return {"path": harness.options.path}
    return {"catalog.uri": harness.catalog["uri"]}
