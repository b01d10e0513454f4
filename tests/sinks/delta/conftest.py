"""What tests of the Delta sink share: a table in each kind of place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.sinks.delta.harness import TableHarness, open_table

TableOpener = Callable[[], AbstractContextManager[TableHarness]]


@pytest.fixture
def opener(tmp_path: Path) -> TableOpener:
    """Opens a harness on a new table in a folder."""
    return partial(open_table, str(tmp_path), {})


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.services)])
def placed(request: pytest.FixtureRequest, tmp_path: Path) -> TableOpener:
    """The same, also in a bucket."""
    if request.param == "folder":
        return partial(open_table, str(tmp_path), {})
    store, prefix = request.getfixturevalue("store"), request.getfixturevalue("prefix")
    store.start()
    given = {"endpoint": store.endpoint, "region": store.region, "timeout": "20"}
    return partial(open_table, f"s3://{store.bucket}/{prefix}", given)


@pytest.fixture
def harness(opener: TableOpener) -> Iterator[TableHarness]:
    """A table in a folder."""
    with opener() as harness:
        yield harness
