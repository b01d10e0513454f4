"""What tests of the Iceberg sink share: a table in each kind of place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.kit.rest_catalog import rest_catalog
from tests.sinks.iceberg.harness import TableHarness, open_table

TableOpener = Callable[[], AbstractContextManager[TableHarness]]


@pytest.fixture(scope="session")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The properties of a REST catalog."""
    with rest_catalog(tmp_path_factory.mktemp("rest")) as url:
        yield {"type": "rest", "uri": url}


@pytest.fixture(params=["sql", pytest.param("rest", marks=pytest.mark.campaign)])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> TableOpener:
    """Opens a harness on a new table in a folder, of each kind of catalog."""
    catalog = None if request.param == "sql" else request.getfixturevalue(request.param)
    return partial(open_table, tmp_path / "catalogs", None, {}, catalog=catalog)


@pytest.fixture
def harness(opener: TableOpener) -> Iterator[TableHarness]:
    """A table in a folder."""
    with opener() as harness:
        yield harness
