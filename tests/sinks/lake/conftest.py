"""Tables of both kinds, in a folder and in a bucket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from abs_services import S3Service
from abs_testing.harness import Harness
from tests.sinks.delta.harness import open_table as open_delta
from tests.sinks.iceberg.conftest import rest  # noqa: F401 - a fixture
from tests.sinks.iceberg.harness import open_table as open_iceberg

TableOpener = Callable[[], AbstractContextManager[Harness]]
KINDS = ("delta", "iceberg")


def in_folder(kind: str, folder: Path) -> TableOpener:
    if kind == "delta":
        return partial(open_delta, str(folder), {})
    return partial(open_iceberg, folder / "catalogs", None, {})


def in_catalog(folder: Path, catalog: Mapping[str, str]) -> TableOpener:
    """An Iceberg table of a catalog that others use, too."""
    return partial(open_iceberg, folder / "catalogs", None, {}, catalog=catalog)


def in_bucket(kind: str, folder: Path, store: S3Service, prefix: str) -> TableOpener:
    store.start()  # the test before may have left it killed
    given = {"endpoint": store.endpoint, "region": store.region, "timeout": "20"}
    url = f"s3://{store.bucket}/{prefix}"
    if kind == "delta":
        return partial(open_delta, url, given)
    return partial(open_iceberg, folder / "catalogs", url, given)


@pytest.fixture(params=KINDS)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> TableOpener:
    """Opens a harness on a new table in a folder."""
    return in_folder(request.param, tmp_path)
