"""Finds what was written twice to a table of the lake, from its log alone; rules without I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from abs_clients.tablelog import LoggedCommit, LoggedFile, TableHistory


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Something that two or more commits of a table have in common.

    Args:
        kind: ``file``: the same file; ``content``: files that look equal; ``epoch``: of one writer.
        commits: versions or snapshots, oldest first.
        files: paths that are there twice, or that are the later ones.
        rows: how many were added once too often; 0 where the log does not tell.
        live: how many of the files a reader still sees more often than once, or at all, if it is a
            later one; the rows of the others may be in compacted files.
    """

    kind: str
    commits: tuple[str, ...]
    files: tuple[str, ...]
    rows: int
    live: int
    what: str
    repair: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def duplicates(history: TableHistory) -> list[Duplicate]:
    """All findings: files first, then contents, then epochs."""
    return [*_files(history), *_contents(history), *_epochs(history)]


def _files(history: TableHistory) -> Iterator[Duplicate]:
    """Files that several commits added, or that one commit added twice."""
    by: dict[str, list[str]] = defaultdict(list)
    rows: dict[str, int] = {}
    for commit in history.commits:
        for file in commit.added:
            by[file.path].append(commit.name)
            rows[file.path] = file.rows
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path, adders in by.items():
        if len(adders) > 1 or history.live.get(path, 0) > 1:
            groups[tuple(adders)].append(path)
    for commits, files in groups.items():
        extra = sum(
            rows[path] * (max(len(commits), history.live.get(path, 0)) - 1) for path in files
        )
        live = sum(history.live.get(path, 0) > 1 for path in files)
        what = f"{_count(files, 'file is', 'files are')} registered more than once"
        yield Duplicate("file", commits, tuple(files), extra, live, what, history.repair_files)


def _contents(history: TableHistory) -> Iterator[Duplicate]:
    """Files of equal size, rows, partition and statistics in different commits."""
    by: dict[str, list[tuple[LoggedCommit, LoggedFile]]] = defaultdict(list)
    for commit in history.commits:
        for file in commit.added:
            if file.content is not None:
                by[file.content].append((commit, file))
    groups: dict[tuple[str, ...], list[LoggedFile]] = defaultdict(list)
    for found in by.values():
        # A path twice is told as such.
        first: dict[str, tuple[LoggedCommit, LoggedFile]] = {}
        for each in found:
            first.setdefault(each[1].path, each)
        commits = tuple(dict.fromkeys(commit.name for commit, _ in first.values()))
        if len(commits) > 1:
            groups[commits] += [
                file for commit, file in first.values() if commit.name != commits[0]
            ]
    for commits, files in groups.items():
        yield Duplicate(
            "content",
            commits,
            tuple(file.path for file in files),
            sum(file.rows for file in files),
            sum(file.path in history.live for file in files),
            f"{_count(files, 'file looks', 'files look')} like files of an earlier commit: equal "
            "sizes, rows, partitions and statistics",
            history.repair_rows,
        )


def _epochs(history: TableHistory) -> Iterator[Duplicate]:
    """Commits of a writer that reached nothing new, or less than an earlier one."""
    furthest: dict[str, dict[str, tuple[int, str]]] = defaultdict(dict)
    for commit in history.commits:
        for epoch in commit.epochs:
            last = furthest[epoch.writer]
            known = {place: last[place] for place in epoch.reached if place in last}
            back = [place for place, (most, _) in known.items() if epoch.reached[place] < most]
            still = len(known) == len(epoch.reached) and all(
                epoch.reached[place] == most for place, (most, _) in known.items()
            )
            if back or (still and known):
                place = back[0] if back else next(iter(known))
                most, where = known[place]
                yield Duplicate(
                    "epoch",
                    (where, commit.name),
                    tuple(file.path for file in commit.added),
                    sum(file.rows for file in commit.added),
                    sum(file.path in history.live for file in commit.added),
                    f"{epoch.writer}: {place} {epoch.reached[place]} comes after {place} {most}",
                    history.repair_rows,
                )
            for place, number in epoch.reached.items():
                if place not in last or number > last[place][0]:
                    last[place] = (number, commit.name)


def _count(files: list[Any], one: str, many: str) -> str:
    return f"1 {one}" if len(files) == 1 else f"{len(files)} {many}"
