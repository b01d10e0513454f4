"""``python -m benchmarks.scoreboard.situations``: each contestant in situations, and the page.

Speed is one table; this is the other: what is in the target after things that happen to streams. Each
contestant has the settings of its own documentation. ``situation_job`` makes the situations.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import environment
from benchmarks.scoreboard.__main__ import LAKE, SPARK, facts
from benchmarks.scoreboard.contestants import CONTESTANTS, Contestant
from benchmarks.scoreboard.measure import Servers, Sizes, places, started
from tests.packaging.venvs import CLIENTS, python_with
from tests.spark.jvm import OPTIONS, QUICK

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULT = ROOT / "benchmarks" / "results" / "situations.json"
PAGE = ROOT / "docs" / "reference" / "situations.md"
SECONDS = 900

TITLES = {
    "killed_between": "killed between write and note",
    "equal_rows": "rows without a key",
    "read_meanwhile": "read meanwhile",
    "second_driver": "second driver",
    "stood_still": "stood still, woke up",
    "deleted_checkpoint": "checkpoint deleted",
    "restored_checkpoint": "checkpoint of yesterday",
    "late_older": "late older epoch",
    "second_target": "second target",
    "lost_reply": "lost reply",
}
HEAD = """\
# Situations

What is in the target after things that happen to streams? `python -m benchmarks.scoreboard.situations`
puts each contestant of the [scoreboard](scoreboard.md) into each situation and reads its target: with
the settings of its own documentation, on Spark 4.1.1 and real servers. This page is made from
`benchmarks/results/situations.json`; no verdict is typed in.

- **killed between write and note**: the sink has written an epoch, Spark has not noted it, and writes
  it again. (A kill leaves that state; here the newest file under `commits/` is deleted.)
- **rows without a key**: the input has rows that are equal to others, in one epoch and in two. All
  should be there. A way that writes by key cannot have them: **one for each key**.
- **read meanwhile**: one task of an epoch takes three seconds longer. Does a reader see a part of it?
- **second driver**: two drivers run the job on one checkpoint, and are in the same epoch at once.
- **stood still, woke up**: a driver is stopped (SIGSTOP) in the middle of an epoch, another one writes
  this epoch and one more, then the first one goes on.
- **checkpoint deleted**: the job begins again from the oldest file, two files an epoch where the first
  run had one. No row should come twice, and no new one be left out.
- **checkpoint of yesterday**: the checkpoint is a backup from before the newest epoch. The next epoch
  has its number, and more rows.
- **late older epoch**: as "stood still", and the one more epoch has newer values of the same keys.
  **only appends**: a way without updates has nothing that could become stale.
- **second target**: the same rows go to two targets of this kind, and the driver is killed when the
  first one has them and the second one not. Ours write both under one decision, a recipe one after the
  other in its function, a sink of Spark's by a query for each. "One ahead until the restart": readers
  of the first target see rows that the second one has not, as long as the job is down. (Of ours, too, a
  reader can see that, in the milliseconds between two commits of a decided epoch, and after a kill in
  them until the next start: this kill comes before.)
- **lost reply**: the server commits, its reply is lost, and the connection breaks: each of an epoch's
  first commits, in an epoch of its own. A query that ends is started again. (Of Kafka's own producer it
  is the reply to a batch of records.) Folders have **no server**.

**refused** means that the query ends with an error, and nothing is wrong in the target: somebody has to
decide, and the error says what. All else is silent: the query is green. **stale N**: so many keys have
an older value than the input's newest. **not run**: not yet.
"""


def run(only: list[str], situations: list[str], result: Path, *, missing: bool) -> None:
    """Try contestants; those that the result file has from an earlier run, and others, stay in it.

    Args:
        missing: only what the result file has no verdict of.
    """
    chosen = [one for one in CONTESTANTS if not only or one.name in only]
    python = python_with(*SPARK, *CLIENTS, *LAKE, of="scoreboard")
    with started(python) as servers:
        made = facts(environment(servers.postgres.url))
        for contestant in chosen:
            had = earlier(result).get(contestant.name, {}).get("verdicts", {})
            todo = [name for name in situations or TITLES if not missing or name not in had]
            if not todo:
                continue
            row, failed = tried(contestant, servers, todo)
            print(failed, file=sys.stderr, flush=True)
            row |= {"date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"), "commit": made["commit"]}
            # Read again each time: two processes may try two contestants at once.
            rows = earlier(result)
            if contestant.name in rows:
                row["verdicts"] = rows[contestant.name]["verdicts"] | row["verdicts"]
            rows[contestant.name] = row
            document: dict[str, Any] = {"environment": made}
            document["rows"] = [rows[one.name] for one in CONTESTANTS if one.name in rows]
            result.write_text(json.dumps(document, indent=1) + "\n")
            print(json.dumps(row), flush=True)


def earlier(result: Path) -> dict[str, dict[str, Any]]:
    """The rows of the result file."""
    rows = json.loads(result.read_text())["rows"] if result.exists() else []
    return {row["name"]: row for row in rows}


def tried(
    contestant: Contestant, servers: Servers, situations: list[str]
) -> tuple[dict[str, Any], str]:
    """The contestant's row, and the end of the log where one could not be made.

    Of a target that no reader of ours knows it is by the target's own reader.
    """
    with places(contestant, servers, Sizes(epochs=0)) as (given, _, environment_):
        results = Path(given["work"], "results.json")
        settings = {
            **given,
            "results": str(results),
            "reads": contestant.targets,
            "unique": contestant.way == "merge" or contestant.protocol == "idempotent",
            "can_update": contestant.keyed,
            "situations": situations,
            # A reader sees what the second driver writes, at once.
            "conf": {**given["conf"], "spark.sql.catalog.lake.cache-enabled": "false"},
            "pids": str(Path(given["work"], "pids")),
        }
        log = Path(given["work"], "log")
        variables = {
            **environment_,
            "ABS_SCOREBOARD": json.dumps(settings),
            OPTIONS: QUICK,  # two JVMs for each contestant, whose speed is not looked at
            "PYTHONPATH": f"{ROOT}:{environment_['PYTHONPATH']}",
        }
        ended = _ended(servers.python, variables, log, Path(settings["pids"]))
        text = results.read_text() if results.exists() else "{}"
        # A traceback names the folders of this machine.
        verdicts = json.loads(text.replace(f"{ROOT}/", ""))
        failed = log.read_text()[-3000:] if ended != 0 else ""
    return {"name": contestant.name, "verdicts": verdicts}, failed


def _ended(python: Path, variables: dict[str, str], log: Path, pids: Path) -> int | None:
    """The job's exit code; None, where its time was over: what it has found is kept."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(python), "-m", "benchmarks.scoreboard.situation_job"],
            env=variables,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return None
        finally:
            others = pids.read_text().split() if pids.exists() else []
            for pid in (process.pid, *map(int, others)):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            process.wait()


def page(document: dict[str, Any]) -> str:
    """From the result file; what a contestant states, from ``contestants``, as on the scoreboard."""
    lines = [HEAD, "| sink | states | " + " | ".join(TITLES.values()) + " |"]
    lines.append("| --- " * (2 + len(TITLES)) + "|")
    rows = {row["name"]: row for row in document["rows"]}
    reasons: dict[str, list[str]] = {}
    for one in CONTESTANTS:
        docs = one.docs if "://" in one.docs else f"../../{one.docs}"
        cells = []
        for name in TITLES:
            verdicts = rows.get(one.name, {"verdicts": {}})["verdicts"]
            case = verdicts.get(name, {"verdict": "not run", "error": ""})
            cells.append(case["verdict"])
            if case["verdict"] == "refused":
                reasons.setdefault(reason(case["error"]), []).append(f"{one.name}: {TITLES[name]}")
        lines.append(f"| [{one.name}]({docs}) | {one.states.value} | " + " | ".join(cells) + " |")
    if reasons:
        lines.append("\n## What the refusals say\n")
        lines += [f"- {text} ({'; '.join(where)})" for text, where in reasons.items()]
    dates = sorted({row["date"] for row in document["rows"]})
    commits = ", ".join(sorted({row["commit"] for row in document["rows"]}))
    lines.append(
        f"\nTried from {dates[0]} to {dates[-1]} (UTC) at commit {commits}. Verdicts do not depend on "
        "how fast the machine is. A situation in which each of ours is tried at every step, with kills "
        "at each of them, is a test of this repository (`tests/sinks`, `tests/spark`).\n"
    )
    return "\n".join(lines)


def reason(error: str) -> str:
    """The error's first sentence, without names that differ from run to run."""
    text = re.sub(r"^.*?((?:\w+\.)*\w*(?:Error|Exception)): ", r"\1: ", error)
    text = re.sub(r"(?<=[\s\"'])/tmp/\S+", "...", text)
    return re.split(r"(?<=[a-z\d)])\.\s", text)[0].replace("|", "\\|").strip()[:300]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="a contestant's name")
    parser.add_argument("--json", type=Path, help="write here, and change no page")
    parser.add_argument("--page", action="store_true", help="from the result file that is there")
    parser.add_argument("--situation", action="append", default=[], help=", ".join(TITLES))
    parser.add_argument("--missing", action="store_true", help="what the result has no verdict of")
    asked = parser.parse_args()
    if not asked.page:
        run(asked.only, asked.situation, asked.json or RESULT, missing=asked.missing)
    if not asked.json:
        PAGE.write_text(page(json.loads(RESULT.read_text())))


if __name__ == "__main__":
    main()
