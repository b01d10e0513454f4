"""How old each figure is: what has changed since its commit in the code that it is about.

``python -m benchmarks.ages`` prints it; ``python -m benchmarks.summary`` writes it on the page.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HEAD = "## Age of the figures"
_TEXT = """
What has changed in the code that a figure is about, from its commit to the one at which this page
was made. A file that was only moved has not changed. `python -m benchmarks.ages` tells it as of now.

| benchmark | commit | commits since | files changed | lines added, removed |
|---|---|---|---|---|
"""
_LAKE = ("delta", "iceberg")
_ROOMS = {
    "core": ("abs_core/coordinator/", "abs_core/protocol.py", "sinks/abs_sinks/deadletters/"),
    "postgres": ("sinks/abs_sinks/postgres/", "clients/abs_clients/postgres/"),
    "kafka": ("sinks/abs_sinks/kafka/", "clients/abs_clients/kafka/", "clients/abs_clients/avro/"),
    "s3": ("sinks/abs_sinks/s3/", "clients/abs_clients/s3/"),
    "lake": (
        "sinks/abs_sinks/lake/",
        *(f"{room}/{of}/" for room in ("sinks/abs_sinks", "clients/abs_clients") for of in _LAKE),
    ),
    "spark": ("integration/abs_spark/",),
    "sources": ("sources/abs_sources/",),
    "engine": ("engine/abs_embedded/", "abs_core/barriers/"),
}
_ENGINE, _POSTGRES = ("engine",), ("core", "postgres")
ABOUT: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("writer_vs_copy", "epoch_cost", "row_digest", "dead_letters"), _POSTGRES),
    "changes_vs_upsert": _POSTGRES,
    **dict.fromkeys(
        ("changes_vs_merge", "exactly_once_vs_at_least_once", "spark_jdbc"), (*_POSTGRES, "spark")
    ),
    **dict.fromkeys(("small_epochs", "three_targets"), (*_POSTGRES, "kafka", "s3", "spark")),
    **dict.fromkeys(("kafka_writer", "kafka_avro", "kafka_dead_letters"), ("core", "kafka")),
    **dict.fromkeys(
        ("kafka_exactly_once", "spark_kafka_100", "spark_kafka_1000"), ("core", "kafka", "spark")
    ),
    **dict.fromkeys(("s3_upload", "s3_commit", "s3_listing", "s3_dead_letters"), ("core", "s3")),
    "spark_s3": ("core", "s3", "spark"),
    "lake_s3": ("core", "lake", "s3"),
    "spark_lake": ("core", "lake", "s3", "spark"),
    **dict.fromkeys(("files_source", "kafka_source"), ("sources",)),
    **dict.fromkeys(("keyed_count", "keyed_count_flink", "snapshot_ways"), _ENGINE),
    **dict.fromkeys(("snapshot_sweep", "alignment", "state_snapshots"), _ENGINE),
}
"""The rooms of the code that a benchmark measures."""


def ages(documents: Mapping[str, Mapping[str, Any]], root: Path = ROOT) -> str:
    """The section of the page, with a row for each benchmark that has a result.

    Args:
        root: the clone; a commit that it does not have is said.
    """
    return HEAD + "\n" + _TEXT + "".join(_row(*each, root) for each in documents.items())


def _row(name: str, document: Mapping[str, Any], root: Path) -> str:
    commit = document.get("environment", {}).get("commit")
    if commit is None or _git(root, "cat-file", "-e", f"{commit}^{{commit}}") is None:
        return f"| {name} | {commit or 'not noted'} | not in this clone | | |\n"
    paths = [path for room in ABOUT[name] for path in _ROOMS[room]]
    counted = _git(root, "rev-list", "--count", f"{commit}..HEAD", "--", *paths) or "0"
    changed = [
        (added, removed)
        for path, added, removed in changes(root, commit)
        if path.startswith(tuple(paths)) and added + removed
    ]
    added, removed = (sum(each[n] for each in changed) for n in (0, 1))
    return f"| {name} | {commit} | {counted.strip()} | {len(changed)} | +{added:,} -{removed:,} |\n"


def changes(root: Path, commit: str) -> Iterator[tuple[str, int, int]]:
    """Each file that differs from the commit, by its present path: lines added and removed."""
    fields = iter((_git(root, "diff", "--numstat", "-M", "-z", commit, "HEAD") or "").split("\0"))
    for field in fields:
        if not field:
            continue
        added, removed, path = field.split("\t")
        if not path:  # it was moved: the old path and the new one follow
            next(fields)
            path = next(fields)
        yield path, *((int(added), int(removed)) if added != "-" else (1, 1))


def _git(root: Path, *arguments: str) -> str | None:
    """What git says; None after an error."""
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


if __name__ == "__main__":
    from benchmarks.summary import HERE, documents_in

    print(ages(documents_in(HERE / "results")))
