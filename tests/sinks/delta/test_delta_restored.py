"""Whether a version is in a Delta table's history: random histories, and what a reader sees."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from abs_clients.delta import history, log
from abs_clients.delta.log import DeltaLog
from tests import sample
from tests.planted import planted

STEPS = 9


def as_spark_notes_it(path: str, version: int, hours: int) -> None:
    """Make the last commit a RESTORE to a time: Spark notes the clock of the session."""
    stamps = {each["version"]: each["timestamp"] for each in DeltaTable(path).history()}
    moment = datetime.fromtimestamp((stamps[version] + 0.5) / 1000, UTC) + timedelta(hours=hours)
    last = max(Path(path, "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in last.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            asked = {"version": None, "timestamp": moment.strftime("%Y-%m-%d %H:%M:%S.%f")}
            action["commitInfo"]["operationParameters"] = asked
    last.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def check(folder: Path, seed: int) -> int:
    """A table with appends, compactions, and restores by version and by time; how many went back."""
    random, path = Random(seed), str(folder / str(seed))
    appended, left = dict[int, int](), 0
    for step in range(STEPS):
        newest = step - 1
        chance = 0.0 if step < 3 else random.random()
        if chance < 0.45:
            write_deltalake(path, pa.table({"id": [step]}), mode="append")
            appended[step] = step
        elif chance < 0.55:
            table = DeltaTable(path)
            table.alter.set_table_properties({"delta.appendOnly": "false"})
        else:
            version = random.randrange(newest)
            DeltaTable(path).restore(version)
            if chance < 0.85:
                as_spark_notes_it(path, version, random.choice((-8, 0, 1, 9)))
    snapshot = DeltaLog(path).load()
    assert snapshot is not None
    there = set(DeltaTable(path).to_pyarrow_table()["id"].to_pylist())
    for version, id_ in appended.items():
        assert snapshot.has(str(version)) is (id_ in there), (seed, version, there)
        left += id_ not in there
    return left


@pytest.mark.parametrize(
    "seeds", [range(8), pytest.param(range(8, 200), marks=pytest.mark.campaign)], ids=str
)
def test_a_version_that_a_restore_left_out_is_told(tmp_path: Path, seeds: range) -> None:
    first = sample.seed()
    assert sum(check(tmp_path, first + seed) for seed in seeds) > 0


def test_a_restore_that_is_not_looked_at_is_found(tmp_path: Path) -> None:
    with planted((log, "is_kept", lambda history, version, table: True)):
        for seed in range(5):
            check(tmp_path, seed)


def test_a_time_that_is_read_in_another_zone_is_found(tmp_path: Path) -> None:
    def by_the_clock(history: list[dict[str, object]], version: int, table: object) -> bool | None:
        for commit in history:
            asked = commit.get("operationParameters")
            if commit.get("operation") == "RESTORE" and isinstance(asked, dict):
                text = asked.get("timestamp")
                if text is not None:
                    moment = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000
                    first = next(c for c in history if c["version"] == version)
                    return moment >= float(str(first["timestamp"]))
        return real(history, version, table)  # type: ignore[arg-type]

    real = history.is_kept
    with planted((log, "is_kept", by_the_clock)):
        for seed in range(12):
            check(tmp_path, seed)


def test_what_a_cleaned_log_cannot_load_is_said_to_be_unknown(tmp_path: Path) -> None:
    path, log_folder = str(tmp_path), tmp_path / "_delta_log"
    for number in range(12):
        write_deltalake(path, pa.table({"id": [number]}), mode="append")
    DeltaTable(path).restore(10)
    as_spark_notes_it(path, 10, 0)
    DeltaTable(path).create_checkpoint()
    for number in range(10):
        (log_folder / f"{number:020}.json").unlink()
    for older in log_folder.glob("*1[01].checkpoint*"):
        older.unlink()
    snapshot = DeltaLog(path).load()
    assert snapshot is not None
    assert [snapshot.has(str(version)) for version in (10, 11, 12)] == [None, None, True]
