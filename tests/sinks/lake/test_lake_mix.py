"""Four writers of our own, which are killed, beside foreign appends and a foreign clean-up."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from abs_testing import SCHEMA
from tests.kit.command import abs_
from tests.packaging.venvs import ROOT
from tests.sample import seed
from tests.sinks.delta.harness import TableHarness as DeltaHarness
from tests.sinks.iceberg.harness import TableHarness as IcebergHarness
from tests.sinks.lake.mixed_writer import done_file, ids_of
from tests.sinks.lake.tending import Beside, tend_delta, tend_iceberg

WRITERS = 4
MINUTES = 10


class DeltaMix:
    """What others do to the table."""

    def __init__(self, folder: Path) -> None:
        self.harness = DeltaHarness(str(folder), {})
        self.path = self.harness.options.path
        self.given = {"path": self.path}
        self.url = f"delta:{self.path}"

    def append(self, rows: pa.Table) -> None:
        write_deltalake(self.path, rows, mode="append")

    def tend(self) -> None:
        tend_delta(self.path)

    def rows(self) -> pa.Table:
        return DeltaTable(self.path).to_pyarrow_table()


class IcebergMix:
    """Likewise."""

    def __init__(self, folder: Path) -> None:
        self.harness = IcebergHarness(folder, None, {})
        catalog = {f"catalog.{name}": value for name, value in self.harness.catalog.items()}
        self.given = {"table": "db.t", **catalog}
        query = "&".join(f"{name}={value}" for name, value in catalog.items())
        self.url = f"iceberg:db.t?{query}"

    def append(self, rows: pa.Table) -> None:
        self.harness.foreign.load_table("db.t").append(rows)

    def tend(self) -> None:
        tend_iceberg(self.harness.foreign.load_table("db.t"))

    def rows(self) -> pa.Table:
        return self.harness.foreign.load_table("db.t").scan().to_arrow()


MIXES: dict[str, Callable[[Path], Any]] = {"delta": DeltaMix, "iceberg": IcebergMix}


class Appending:
    """A foreign writer that appends a row at a time."""

    def __init__(self, mix: Any) -> None:
        self._mix = mix
        self.appended: list[int] = []

    def __call__(self) -> None:
        id_ = -1 - len(self.appended)
        self._mix.append(pa.table({"id": [id_], "value": ["foreign"]}, schema=SCHEMA))
        self.appended.append(id_)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", MIXES)
def test_four_writers_that_are_killed_and_two_foreign_ones_leave_every_row_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    mix = MIXES[kind](tmp_path)
    mix.harness.options.address.create(SCHEMA, [])
    minutes = min(request.config.getoption("minutes") or MINUTES, MINUTES)
    appending = Appending(mix)
    with Beside(appending, mix.tend) as others:
        kills = _killed_for(60 * minutes, kind, mix, tmp_path)
    expected = Counter(appending.appended)
    for number in range(WRITERS):
        done = done_file(tmp_path, number)
        epochs = (int(done.read_text()) if done.exists() else 0) + 1
        last = _start(kind, mix, tmp_path, number, str(epochs))
        assert last.wait(120) == 0, _log(tmp_path, number)
        expected.update(ids_of(number, epochs))
    found = Counter(mix.rows()["id"].to_pylist())
    told = f"{kills} kills, {len(expected):,} rows; foreign appends and clean-ups: {others.done}"
    print(f"{kind}: {told}, of which a race was lost: {others.lost}")
    assert kills > minutes
    assert min(others.done) > minutes
    assert found == expected
    audit = abs_("audit", "duplicates", mix.url, "--json")
    assert not [
        each for each in json.loads(audit.output)["duplicates"] if each["kind"] != "content"
    ]


def _killed_for(seconds: float, kind: str, mix: Any, folder: Path) -> int:
    """How often a writer was killed; each is started again at once."""
    draw, kills = random.Random(f"{seed()} {kind}"), 0
    jobs = {number: _start(kind, mix, folder, number) for number in range(WRITERS)}
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            number = draw.randrange(WRITERS)
            with suppress(subprocess.TimeoutExpired):
                jobs[number].wait(draw.uniform(0.5, 4.0))
            jobs[number].kill()
            kills += 1
            assert jobs[number].wait() == -SIGKILL, _log(folder, number)
            jobs[number] = _start(kind, mix, folder, number)
    finally:
        for job in jobs.values():
            job.kill()
            job.wait()
    return kills


def _start(kind: str, mix: Any, folder: Path, number: int, *until: str) -> subprocess.Popen[bytes]:
    asked = [sys.executable, "-m", "tests.sinks.lake.mixed_writer", kind, json.dumps(mix.given)]
    with (folder / f"{number}.log").open("ab") as log:
        return subprocess.Popen(
            [*asked, str(folder), str(number), *until],
            cwd=ROOT,
            env=dict(os.environ),
            stdout=log,
            stderr=log,
        )


def _log(folder: Path, number: int) -> str:
    return (folder / f"{number}.log").read_text()[-3000:]
