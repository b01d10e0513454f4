"""Changes one place of the product at a time, by cosmic-ray, and counts what no test notices.

    pip install cosmic-ray
    python -m tests.mutants core --sample 60

It works on a copy of the last commit. Servers that ``ABS_SERVICES=external`` names are used for all
mutants; else, each run of the tests starts its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import sample
from tests.roots import FOLDERS

ROOT = Path(__file__).parents[1]
SOURCES = (".", *FOLDERS)
EQUAL = ("ReplaceBinaryOperator_BitOr_%", "%Eq_Is", "%Eq_IsNot", "RemoveDecorator")
"""Not tried: types that nobody evaluates, and identity of values that Python keeps once."""


@dataclass(frozen=True)
class Room:
    """Modules, and the tests that should notice each change of them, the quickest first.

    Args:
        seconds: in which these tests end where nothing is changed, at the most.
        served: whether they use servers, which should run already (``ABS_SERVICES=external``).
    """

    modules: Sequence[str]
    tests: Sequence[str]
    seconds: int = 60
    served: bool = False


ROOMS = {
    "core": Room(
        (
            *("abs_core/protocol.py", "abs_core/births/rules.py", "abs_core/births/parent.py"),
            *("abs_core/coordinator/", "abs_core/registers.py"),
        ),
        tuple(
            f"tests/core/test_{of}.py"
            for of in (
                *("protocol_rules", "births", "cell", "registers", "coordinator_rules", "parent"),
                *("rare_raises", "protocol_start", "local_disk", "run_ends", "unknown_is_not_lost"),
                *("writes_that_fail_first", "stopped_runs", "decision_deadline", "late_changes"),
                *("reads", "coordinator_composes", "aborting", "several_sinks"),
            )
        ),
    ),
    "committers": Room(
        tuple(
            f"sinks/abs_sinks/kafka/{of}.py"
            for of in ("ledger", "side_topic", "open_transaction", "idempotent", "give_up_attempts")
        ),
        tuple(
            f"tests/sinks/kafka/test_kafka_{of}.py"
            for of in ("proofs", "rare_raises", "outcome", "ledgers_topic", "joined_ids")
        ),
    ),
    "registers": Room(
        ("sinks/abs_sinks/kafka/register/",),
        tuple(
            f"tests/sinks/kafka/test_kafka_{of}.py"
            for of in (
                *("register_tail", "register_cells", "rare_raises", "ledgers_topic"),
                *("register_topic", "register", "register_fencing"),
            )
        ),
        seconds=80,
        served=True,
    ),
    "readers": Room(
        tuple(
            f"sources/abs_sources/kafka/{of}.py"
            for of in ("bounds", "offsets", "planning", "columns", "attempt_filter", "undecided")
        ),
        (
            *(f"tests/sources/kafka/test_kafka_source_{of}.py" for of in ("planning", "options")),
            *(f"tests/sources/kafka/test_kafka_source_{of}.py" for of in ("columns", "unheard")),
            "tests/sources/kafka/test_kafka_source_asking.py",
            "tests/sources/kafka/test_kafka_undecided.py",
            "tests/sources/test_rare_raises.py",
        ),
    ),
    "postgres": Room(
        tuple(
            f"sinks/abs_sinks/postgres/{of}.py"
            for of in (
                *("register", "prepared", "staging", "twophase", "wal", "epoch_transaction"),
                *("idempotent", "apply"),
            )
        ),
        tuple(
            f"tests/sinks/postgres/test_pg_{of}.py"
            for of in (
                *("rare_raises", "register_contract", "may_write", "onconflict", "replaces"),
                *("change_rules", "composes", "register", "zombies", "losses"),
            )
        ),
        seconds=100,
        served=True,
    ),
    "s3": Room(
        tuple(
            f"sinks/abs_sinks/s3/{of}.py"
            for of in (
                *("register", "uploads", "upload_commit", "twophase", "manifests", "idempotent"),
                *("wal", "segments"),
            )
        ),
        tuple(
            f"tests/sinks/s3/test_s3_{of}.py"
            for of in (
                *("rare_raises", "upload_outcomes", "layout", "handles", "empty", "ahead"),
                *("listing", "lost_register", "manifests", "register_contract"),
                *("many_handles", "rivals", "wal"),
            )
        ),
        seconds=80,
        served=True,
    ),
    "files": Room(
        (
            *(f"sources/abs_sources/files/{of}.py" for of in ("source", "log", "cells", "consent")),
            *(f"sources/abs_sources/files/{of}.py" for of in ("readers", "pattern", "local")),
            "abs_core/registers.py",
        ),
        (
            *(f"tests/sources/files/test_files_{of}.py" for of in ("folders", "choice", "way_out")),
            *(f"tests/sources/files/test_files_{of}.py" for of in ("log", "misread", "s3_keys")),
            *("tests/sources/test_rare_raises.py", "tests/core/test_registers.py"),
            "tests/sources/files/test_files_reading.py",
        ),
    ),
}
"""Of Kafka's committers and readers those modules that tests without a server look at."""


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--sample", type=int, default=40, help="so many places")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        survivors(given.room, given.sample, Path(folder) / "copy")


def survivors(name: str, size: int, copy: Path) -> None:
    """Try so many mutants of a room in a copy of the checkout; print what survived."""
    room = ROOMS[name]
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(copy)], check=True)
    paths = os.pathsep.join(str(copy / source) for source in SOURCES)
    marks = f"not campaign and not spark{'' if room.served else ' and not services'}"
    options = f"-x -q -p no:cacheprovider -m '{marks}'"
    tests = f"{sys.executable} -m pytest {options} {' '.join(room.tests)}"
    modules = [
        str(path.relative_to(copy))
        for module in room.modules
        for path in sorted(
            (copy / module).glob("*.py") if module.endswith("/") else [copy / module]
        )
    ]
    (copy / "mutants.toml").write_text(
        f"[cosmic-ray]\nmodule-path = {json.dumps(modules)}\ntimeout = {3.0 * room.seconds}\n"
        f'excluded-modules = []\ntest-command = "{tests}"\n'
        '[cosmic-ray.distributor]\nname = "local"\n'
    )
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}

    def ray(*command: str) -> None:
        tool = shutil.which("cosmic-ray")
        if tool is None:
            sys.exit("there is no cosmic-ray on the PATH: pip install cosmic-ray")
        subprocess.run([tool, *command], cwd=copy, env=environment, check=True)

    ray("baseline", "mutants.toml")
    ray("init", "mutants.toml", "mutants.sqlite")
    with sqlite3.connect(copy / "mutants.sqlite") as session:
        places = choose(session, size, of=name)
    ray("exec", "mutants.toml", "mutants.sqlite")
    with sqlite3.connect(copy / "mutants.sqlite") as session:
        tell(session, name, places)


def choose(session: sqlite3.Connection, size: int, of: str) -> int:
    """Leave one mutant of each chosen place to be tried; return the number of all places."""
    draw = random.Random(f"{of} {sample.seed()}")
    unlike = " and ".join(f"operator_name not like 'core/{each}'" for each in EQUAL)
    places: dict[tuple[str, int, int], list[str]] = {}
    for job, *place in session.execute(
        "select job_id, module_path, start_pos_row, start_pos_col from mutation_specs "
        f"where {unlike} order by module_path, start_pos_row, start_pos_col, operator_name, occurrence"
    ):
        places.setdefault(tuple(place), []).append(job)
    found = sorted(places)
    chosen = [draw.choice(places[place]) for place in draw.sample(found, min(size, len(found)))]
    skipped = "insert into work_results (job_id, worker_outcome) select job_id, 'SKIPPED' "
    session.execute(
        "create temp table chosen as select value from json_each(?)", [json.dumps(chosen)]
    )
    session.execute(f"{skipped} from work_items where job_id not in (select value from chosen)")
    return len(places)


def tell(session: sqlite3.Connection, name: str, places: int) -> None:
    """Print the share that survived, by module, and each survivor."""
    ran = session.execute(
        "select module_path, test_outcome, diff from work_results join mutation_specs using (job_id) "
        "where worker_outcome <> 'SKIPPED' order by module_path, start_pos_row"
    ).fetchall()
    alive = [(module, diff) for module, outcome, diff in ran if outcome == "SURVIVED"]
    print(f"{name}: {len(ran)} mutants of {places} places, {len(alive)} survived")
    for module in sorted({module for module, *_ in ran}):
        tried = sum(one == module for one, *_ in ran)
        print(f"  {module}: {sum(one == module for one, _ in alive)} of {tried}")
    for _, diff in alive:
        print(diff, "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
