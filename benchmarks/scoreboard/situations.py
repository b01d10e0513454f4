"""``python -m benchmarks.scoreboard.situations``: each contestant in situations, and the page.

Speed is one table; this is the other: what is in the target after things that happen to streams. Each
contestant has the settings of its own documentation. ``situation_job`` makes the situations.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import environment, load
from benchmarks.scoreboard.__main__ import DELTALAKE, SPARK, facts
from benchmarks.scoreboard.contestants import CONTESTANTS, Contestant
from benchmarks.scoreboard.measure import Servers, Sizes, places, started
from tests.packaging.venvs import CLIENTS, python_with

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULT = ROOT / "benchmarks" / "results" / "situations.json"
PAGE = ROOT / "docs" / "reference" / "situations.md"
SECONDS = 900

LEFT_OUT = ("abs-kafka, idempotent",)
"""Its readers take the first record of each name, which the plain reader here does not."""
TITLES = {
    "killed_between": "killed between write and note",
    "equal_keys": "equal rows",
    "read_meanwhile": "read meanwhile",
    "deleted_checkpoint": "checkpoint deleted",
    "restored_checkpoint": "checkpoint of yesterday",
}
HEAD = """\
# Situations

What is in the target after things that happen to streams? `python -m benchmarks.scoreboard.situations`
puts each contestant of the [scoreboard](scoreboard.md) into each situation and reads its target: with
the settings of its own documentation, on Spark 4.1.1 and real servers. This page is made from
`benchmarks/results/situations.json`.

- **killed between write and note**: the sink has written an epoch, Spark has not noted it, and writes
  it again. (A kill leaves that state; here the newest file under `commits/` is deleted.)
- **equal rows**: the input has rows that are equal to others, in one epoch and in two. All should be
  there. A way that writes by key cannot have them.
- **read meanwhile**: one task of an epoch takes four seconds longer. Does a reader see a part of it?
- **checkpoint deleted**: the job begins again from the oldest file, two files an epoch where the first
  run had one. No row should come twice, and no new one be left out.
- **checkpoint of yesterday**: the checkpoint is a backup from before the newest epoch. The next epoch
  has its number, and more rows.

**stopped** means that the query ends with an error, and nothing is wrong in the target: somebody has to
decide, and the error says what. All else is silent: the query is green.
"""


def run(only: list[str], result: Path) -> None:
    named = {one.name for one in CONTESTANTS}
    chosen = [one for one in CONTESTANTS if one.name in (only or {*named} - {*LEFT_OUT})]
    python = python_with(*SPARK, *CLIENTS, DELTALAKE, of="scoreboard")
    document: dict[str, Any] = {
        "started": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "load before": load(),
        "rows": [],
    }
    with started(python) as servers:
        document["environment"] = facts(environment(servers.postgres.url))
        for contestant in chosen:
            document["rows"].append(tried(contestant, servers))
            result.write_text(json.dumps(document, indent=1) + "\n")
            print(json.dumps(document["rows"][-1]), flush=True)


def tried(contestant: Contestant, servers: Servers) -> dict[str, Any]:
    """The contestant's row; of a target that no reader of ours knows, by its own reader."""
    with places(contestant, servers, Sizes(epochs=0)) as (given, _, environment_):
        results = Path(given["work"], "results.json")
        settings = {
            **given,
            "results": str(results),
            "reads": contestant.targets[0],
            "unique": contestant.way == "merge" or contestant.protocol == "idempotent",
        }
        log = Path(given["work"], "log")
        with log.open("wb") as out:
            ended = subprocess.run(
                [str(servers.python), "-m", "benchmarks.scoreboard.situation_job"],
                env={
                    **environment_,
                    "ABS_SCOREBOARD": json.dumps(settings),
                    "PYTHONPATH": f"{ROOT}:{environment_['PYTHONPATH']}",
                },
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=SECONDS,
                check=False,
            )
        verdicts = json.loads(results.read_text()) if results.exists() else {}
        failed = log.read_text()[-3000:] if ended.returncode else ""
    states = {"name": contestant.name, "states": contestant.states.value, "docs": contestant.docs}
    return {**states, "verdicts": verdicts, "failed": failed}


def page(document: dict[str, Any]) -> str:
    """From the result file: no verdict is typed in."""
    names = [*TITLES]
    lines = [HEAD, "| sink | states | " + " | ".join(TITLES.values()) + " |"]
    lines.append("| --- " * (2 + len(names)) + "|")
    for row in document["rows"]:
        docs = row["docs"] if "://" in row["docs"] else f"../../{row['docs']}"
        cells = [row["verdicts"].get(name, {}).get("verdict", "not run") for name in names]
        lines.append(f"| [{row['name']}]({docs}) | {row['states']} | " + " | ".join(cells) + " |")
    made = document["environment"]
    lines.append(
        f"\n{document['started']} at commit {made['commit']}. Verdicts do not depend on how fast the "
        "machine is. What is not tried here: a second driver, a driver that stood still, a lost reply "
        "of a commit, a second target beside the first; our own sinks are in tests of the repository.\n"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="a contestant's name")
    parser.add_argument("--json", type=Path, help="write here, and change no page")
    parser.add_argument("--page", action="store_true", help="from the result file that is there")
    asked = parser.parse_args()
    if not asked.page:
        run(asked.only, asked.json or RESULT)
    if not asked.json:
        PAGE.write_text(page(json.loads(RESULT.read_text())))


if __name__ == "__main__":
    main()
