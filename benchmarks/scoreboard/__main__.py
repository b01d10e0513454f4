"""``python -m benchmarks.scoreboard``: runs the contestants; result file, page, README."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import environment, load
from benchmarks.scoreboard.contestants import CONTESTANTS
from benchmarks.scoreboard.measure import Sizes, measure, started, to_dict
from benchmarks.scoreboard.table import in_readme, page
from tests.packaging.venvs import CLIENTS, python_with

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks" / "results" / "scoreboard.json"
PAGE = ROOT / "docs" / "reference" / "scoreboard.md"
README = ROOT / "README.md"
SPARK = ("pyspark==4.1.1", "setuptools==80.9.0", "numpy==2.1.3", "pandas==2.3.3", "pyarrow==21.0.0")
"""The newest release of Spark for which Delta and Iceberg have jars."""
OF_THIS_PROCESS = ("pyspark", "pyarrow", "psycopg", "pgpq")
LAKE = ("deltalake>=1.6,<1.7", "pyiceberg[sql-sqlite,pyiceberg-core]>=0.12,<0.13")


def facts(found: Mapping[str, str]) -> dict[str, str]:
    """What is noted of the machine, with the packages of the jobs instead of this process's."""
    kept = {name: value for name, value in found.items() if name not in OF_THIS_PROCESS}
    return {**kept, **dict(one.split("==") for one in SPARK)}


def earlier(result: Path) -> dict[str, dict[str, Any]]:
    """The rows of the result file, each with the commit of its run."""
    if not result.exists():
        return {}
    document = json.loads(result.read_text())
    commit = document["environment"]["commit"]
    return {row["name"]: {"commit": commit, **row} for row in document["rows"]}


def run(sizes: Sizes, only: list[str], result: Path) -> None:
    """Write the result, anew after each contestant: a run that is cut off keeps what it has.

    A run of some contestants keeps the rows of the others.
    """
    named = {one.name: one for one in CONTESTANTS}
    rows = earlier(result) if only else {}
    chosen = [named[name] for name in only or named]
    python = python_with(*SPARK, *CLIENTS, *LAKE, of="scoreboard")
    document: dict[str, Any] = {
        "started": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "command": " ".join(["python", "-m", "benchmarks.scoreboard", *sys.argv[1:]]),
        "sizes": asdict(sizes),
        "load before": load(),
    }
    began = time.monotonic()
    with started(python) as servers:
        document["environment"] = facts(environment(servers.postgres.url))
        commit = {"commit": document["environment"]["commit"]}
        for number, contestant in enumerate(chosen, 1):
            row = rows[contestant.name] = to_dict(measure(contestant, servers, sizes)) | commit
            document["rows"] = [rows[name] for name in named if name in rows]
            document["load after"] = load()
            document["seconds"] = round(time.monotonic() - began)
            result.write_text(json.dumps(document, indent=1) + "\n")
            told = {name: value for name, value in row.items() if name != "docs"}
            print(f"{number}/{len(chosen)} {document['seconds']} s {json.dumps(told)}", flush=True)


def stated(document: dict[str, Any]) -> dict[str, Any]:
    """The result with what each contestant states by its documentation as it is read today."""
    named = {one.name: one for one in CONTESTANTS}
    for row in document["rows"]:
        one = named[row["name"]]
        row["states"], row["docs"] = one.states.value, one.docs
    return document


def main() -> None:
    """Run, or with ``--pages`` only write page and README from the result file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scoreboard", description=__doc__)
    for field in fields(Sizes):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}", default=field.default, type=type(field.default)
        )
    parser.add_argument("--only", action="append", default=[], help="a contestant's name")
    parser.add_argument("--json", type=Path, help="write here, and change no page")
    parser.add_argument("--pages", action="store_true", help="from the result file that is there")
    asked = vars(parser.parse_args())
    only, elsewhere, pages = asked.pop("only"), asked.pop("json"), asked.pop("pages")
    if not pages:
        run(Sizes(**asked), only, elsewhere or RESULT)
    if not elsewhere:
        document = stated(json.loads(RESULT.read_text()))
        PAGE.write_text(page(document))
        README.write_text(in_readme(README.read_text(), document))


if __name__ == "__main__":
    main()
