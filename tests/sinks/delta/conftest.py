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


@pytest.fixture
def harness(opener: TableOpener) -> Iterator[TableHarness]:
    """A table in a folder."""
    with opener() as harness:
        yield harness
