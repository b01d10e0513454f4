"""What tests of all sinks share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from abs_testing import Harness
from abs_testing.case import Case


@pytest.fixture
def case(harness: Harness) -> Iterator[Case]:
    """The target of the fixture ``harness``, and runs on it."""
    with Case(harness) as case:
        yield case
