"""`abs audit` of a job with several sinks: target by target, and epoch by epoch."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from tests.cli.several import Several
from tests.kit.command import abs_

pytestmark = pytest.mark.services


def test_every_target_is_audited_and_one_that_lacks_a_row_is_found(
    job: Several, tmp_path: Path
) -> None:
    rows = [f'{{"id": {n}}}' for n in range(5)]
    job.epoch(job.run(), 0, *rows)
    records, table = tmp_path / "records.json", tmp_path / "table.json"
    records.write_text("\n".join(rows) + "\n")
    table.write_text("".join(json.dumps({"key": row, "value": row}) + "\n" for row in rows))
    job.audit = {
        "payments": (str(table), "key"),
        "alerts": (str(records), "id"),
        "items": ("sink:payments", "key"),
    }
    clean = abs_("audit", "--sinks", job.file())
    assert clean.exit_code == 0, (clean.output, clean.exception)
    with psycopg.connect(job.url, autocommit=True) as connection:
        connection.execute("delete from payments where key like '%3%'")
    found = abs_("audit", "--sinks", job.file(), "--json")
    assert found.exit_code == 1, (found.output, found.exception)
    reports = json.loads(found.stdout)["sinks"]
    counts = {name: (r["missing"], r["unexpected"]) for name, r in reports.items()}
    assert counts == {"payments": (1, 0), "alerts": (0, 0), "items": (0, 1)}


def test_dead_letters_of_a_sink_are_audited_with_its_rows(job: Several, tmp_path: Path) -> None:
    with psycopg.connect(job.url, autocommit=True) as connection:
        connection.execute("alter table payments add check (key <> 'bad')")
    job.payments = {"deadletter": "refused", "deadlettermax": "1"}
    job.epoch(job.run(), 0, "good", "bad")
    table = tmp_path / "table.json"
    lines = [json.dumps({"key": row, "value": row}) for row in ("good", "bad")]
    table.write_text("\n".join(lines))
    job.audit = {"payments": (str(table), "key")}
    clean = abs_("audit", "--sinks", job.file())
    assert clean.exit_code == 0, (clean.output, clean.exception)
    with psycopg.connect(job.url, autocommit=True) as connection:
        connection.execute("delete from refused")
    lost = abs_("audit", "--sinks", job.file(), "--json")
    assert lost.exit_code == 1
    assert json.loads(lost.stdout)["sinks"]["payments"]["missing"] == 1


def test_an_error_of_an_audit_names_the_sink(job: Several, tmp_path: Path) -> None:
    job.epoch(job.run(), 0, "x")
    (tmp_path / "table.json").write_text('{"key": "x"}')
    job.audit = {"payments": (str(tmp_path / "table.json"), "key")}
    refused = abs_("audit", "--sinks", job.file())
    assert "error: Sink payments: " in refused.stderr


def test_a_sink_without_an_audit_is_named_and_fails_if_strictness_is_asked_for(
    job: Several, tmp_path: Path
) -> None:
    rows = [f'{{"id": {n}}}' for n in range(5)]
    job.epoch(job.run(), 0, *rows)
    records = tmp_path / "records.json"
    records.write_text("\n".join(rows) + "\n")
    job.audit = {"alerts": (str(records), "id")}
    told = abs_("audit", "--sinks", job.file())
    assert told.exit_code == 0, (told.output, told.exception)
    assert "not audited payments, items: without audit = ..." in told.output
    assert abs_("audit", "--sinks", job.file(), "--strict").exit_code == 1
    job.audit = {}
    assert abs_("audit", "--sinks", job.file()).exit_code == 1, "nothing was audited"


def test_an_epoch_that_is_missing_in_one_target_is_named(job: Several, tmp_path: Path) -> None:
    rows = [[f'{{"id": {n}}}' for n in ids] for ids in (range(3), range(3, 5))]
    run = job.run()
    epochs = [
        [json.dumps({"key": row, "value": row, **json.loads(row)}) for row in epoch]
        for epoch in rows
    ]
    files = [tmp_path / f"{number}.json" for number in range(len(epochs))]
    for number, (file, lines) in enumerate(zip(files, epochs, strict=True)):
        job.epoch(run, number, *rows[number])
        file.write_text("\n".join(lines))
    job.spark = checkpoint_of(tmp_path / "spark", files)
    records = str(tmp_path / "*.json")
    job.audit = {"payments": (records, "key"), "alerts": (records, "id"), "items": (records, "key")}
    job.columns = {"payments": "value", "alerts": "id", "items": "value"}
    clean = abs_("audit", "--sinks", job.file(), "--epochs")
    assert clean.exit_code == 0, (clean.output, clean.exception)
    assert "CLEAN  epoch by epoch: 2 looked for in payments, alerts, items; 2 are" in clean.output
    with psycopg.connect(job.url, autocommit=True) as connection:
        connection.execute("delete from payments where value = any(%s)", [rows[1]])
    torn = abs_("audit", "--sinks", job.file(), "--epochs", "--json")
    assert torn.exit_code == 1, (torn.output, torn.exception)
    found = {one["epoch"]: one for one in json.loads(torn.stdout)["epochs"]}
    assert [found[0]["whole"], found[1]["whole"]] == [True, False]
    there = {name: held["actual"] for name, held in found[1]["found"].items()}
    assert there == {"payments": 0, "alerts": 2, "items": 2}


def checkpoint_of(folder: Path, files: list[Path]) -> Path:
    """What Spark keeps of a query that reads a folder, a file an epoch."""
    for name in ("offsets", "sources/0"):
        (folder / name).mkdir(parents=True)
    for epoch, file in enumerate(files):
        (folder / "offsets" / str(epoch)).write_text(f'v1\n{{}}\n{{"logOffset":{epoch}}}')
        entry = json.dumps({"path": file.as_uri(), "batchId": epoch})
        (folder / "sources" / "0" / str(epoch)).write_text(f"v1\n{entry}")
    return folder
