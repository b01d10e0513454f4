"""The sink on a Glue catalog as moto plays it: calls and answers, not how conflicts are taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from abs_testing.case import JOB, Case
from abs_testing.cuts import Cut
from tests.kit.command import abs_
from tests.kit.moto import glue
from tests.sinks.iceberg.harness import open_table
from tests.sinks.iceberg.test_iceberg_rivals import LEFT, RIGHT
from tests.sinks.lake.between import unheard


@pytest.mark.campaign
def test_epochs_replays_and_lost_replies_leave_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with glue(tmp_path) as catalog, open_table(tmp_path, None, {}, catalog=catalog) as harness:
        case = Case(harness)
        case.halted(Cut("commit"), LEFT, RIGHT)
        query = "&".join(f"catalog.{name}={value}" for name, value in harness.catalog.items())
        url = f"iceberg:{harness.name}?{query}"
        done = abs_("in-doubt", "commit", JOB, "--url", url)
        assert done.exit_code == 0, done.output
        case.run().epoch(0, LEFT, RIGHT)
        case.holds(LEFT, RIGHT, when="after a replay")
        left = unheard(monkeypatch)
        case.run().epoch(1, RIGHT)
        assert not left
        case.finished(LEFT, RIGHT, RIGHT, when="after a commit whose reply was lost")
