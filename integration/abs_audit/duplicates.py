"""Finds what was written twice to a table of the lake, from its log alone; rules without I/O.

Two files are a finding only if a reader saw the rows of both in one version of the table: what an
overwrite, a delete or a restore has removed before is not there twice. Files whose rows a compaction
moved are seen as long as one of the files that took them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from abs_clients.tablelog import Epoch, LoggedCommit, LoggedFile, TableHistory


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
        certain: False where a table that holds each row once may look so, too.
    """

    kind: str
    commits: tuple[str, ...]
    files: tuple[str, ...]
    rows: int
    live: int
    what: str
    repair: str
    certain: bool = True

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def duplicates(history: TableHistory) -> list[Duplicate]:
    """All findings: files first, then contents, then epochs."""
    rows, paths, contents = _Rows(), _Groups(), _Groups()
    epochs: list[Duplicate] = []
    writers: dict[str, _Writer] = defaultdict(_Writer)
    for commit in history.commits:
        before = {file.path for file in commit.added if rows.seen(file.path)} - set(commit.removed)
        rows.apply(commit)
        for file in commit.added:
            paths.add(file.path, commit, file, before.__contains__)
            if file.content is not None:
                contents.add(file.content, commit, file, rows.seen)
        for epoch in commit.epochs:
            epochs += _epoch(epoch, commit, writers[epoch.writer], rows, history.live)
    return [*_files(paths, rows, history), *_contents(contents, rows, history), *epochs]


class _Rows:
    """Whose rows a reader sees after the commits that were applied."""

    def __init__(self) -> None:
        self._live: set[str] = set()
        self._taken: dict[str, tuple[str, ...]] = {}
        """Files that a compaction removed, and those that hold their rows since."""
        self.altered: set[str] = set()
        """Files of which some rows were deleted, or may have been."""

    def apply(self, commit: LoggedCommit) -> None:
        added = tuple(file.path for file in commit.added)
        self.altered |= self._live if commit.altered is None else set(commit.altered)
        for path in commit.removed:
            self._live.discard(path)
            if commit.rewrites:
                self._taken[path] = added
        self._live |= {*added, *commit.restored}

    def seen(self, path: str) -> bool:
        """Whether a reader sees the file, or another one that took its rows."""
        return path in self._live or self.moved(path)

    def moved(self, path: str) -> bool:
        """Whether a reader sees a file that took this one's rows."""
        waiting, looked_at = list(self._taken.get(path, ())), set[str]()
        while waiting:
            heir = waiting.pop()
            if heir in self._live:
                return True
            if heir not in looked_at:
                looked_at.add(heir)
                waiting += self._taken.get(heir, ())
        return False


_Member = tuple[LoggedCommit, LoggedFile]


@dataclass(slots=True)
class _Groups:
    """Files of one key, in groups that a reader saw together."""

    _by_key: dict[str, list[list[_Member]]] = field(default_factory=lambda: defaultdict(list))

    def add(
        self, key: str, commit: LoggedCommit, file: LoggedFile, seen: Callable[[str], bool]
    ) -> None:
        """Put a file beside those of its key that are seen, or into a group of its own."""
        for group in self._by_key[key]:
            if any(seen(other.path) for _, other in group):
                group.append((commit, file))
                return
        self._by_key[key].append([(commit, file)])

    def by_commits(self) -> dict[tuple[str, ...], list[list[_Member]]]:
        """All groups, by the commits that added their files."""
        together: dict[tuple[str, ...], list[list[_Member]]] = defaultdict(list)
        for groups in self._by_key.values():
            for group in groups:
                together[tuple(dict.fromkeys(commit.name for commit, _ in group))].append(group)
        return together


def _files(groups: _Groups, rows: _Rows, history: TableHistory) -> Iterator[Duplicate]:
    """Files that a commit added while their rows were there, or that one commit added twice."""
    for commits, members in groups.by_commits().items():
        files = [group[-1][1] for group in members]
        if len(commits) == 1:
            files = [file for file in files if history.live.get(file.path, 0) > 1]
        if not files:
            continue
        extra = sum(
            file.rows * (max(len(commits), history.live.get(file.path, 0)) - 1) for file in files
        )
        paths = tuple(file.path for file in files)
        live = [path for path in paths if history.live.get(path, 0) > 1 or rows.moved(path)]
        yield Duplicate(
            "file",
            commits,
            paths,
            extra,
            sum(history.live.get(path, 0) > 1 for path in paths),
            f"{_count(files, 'file is', 'files are')} registered more than once",
            history.repair_files if live else _NOTHING_LEFT,
        )


_NOTHING_LEFT = (
    "none is needed: the newest state does not hold them twice. Remove none of these files."
)


def _contents(groups: _Groups, rows: _Rows, history: TableHistory) -> Iterator[Duplicate]:
    """Files of equal size, rows, partition and statistics in different commits."""
    for commits, members in groups.by_commits().items():
        if len(commits) == 1:
            continue
        # A path twice is told as such.
        distinct = [list({file.path: file for _, file in group}.values()) for group in members]
        distinct = [files for files in distinct if len(files) > 1]
        if not distinct:
            continue
        later = [file for files in distinct for file in files[1:]]
        altered = any(file.path in rows.altered for files in distinct for file in files)
        doubt = "; rows of some were deleted since, so they may be there once" if altered else ""
        yield Duplicate(
            "content",
            commits,
            tuple(file.path for file in later),
            sum(file.rows for file in later),
            sum(file.path in history.live for file in later),
            f"{_count(later, 'file looks', 'files look')} like files of an earlier commit: equal "
            f"sizes, rows, partitions and statistics{doubt}",
            _removal(distinct, rows, history),
            certain=not altered,
        )


def _removal(groups: Iterable[list[LoggedFile]], rows: _Rows, history: TableHistory) -> str:
    """What may be removed so that one of each group's files stays in the newest state."""
    spare = [
        file.path
        for files in groups
        for file in [file for file in files if file.path in history.live][1:]
    ]
    if spare:
        return (
            f"compare the files' rows; if they are the same, take {', '.join(spare)} out of the table "
            f"({history.remove_file}). The file that each is like must stay."
        )
    if any(rows.moved(file.path) for files in groups for file in files):
        return (
            "rows of these files are in files that a compaction wrote: compare rows by their key, and "
            "delete those that are there twice. Remove none of these files: it may hold the only copy."
        )
    return _NOTHING_LEFT


class _Writer:
    """What one writer's commits have reached, so far."""

    def __init__(self) -> None:
        self._commits: list[tuple[LoggedCommit, Epoch]] = []
        self._furthest: dict[str, int] = {}
        self._lowest: dict[str, int] = {}

    def add(self, commit: LoggedCommit, epoch: Epoch) -> None:
        self._commits.append((commit, epoch))
        for place, number in epoch.reached.items():
            self._furthest[place] = max(number, self._furthest.get(place, number))
            self._lowest[place] = min(number, self._lowest.get(place, number))

    def begin_again(self) -> None:
        self._commits.clear()
        self._furthest.clear()
        self._lowest.clear()

    def below_all(self, epoch: Epoch) -> bool:
        """Whether all of it is as low as the lowest so far: a retry goes back less far."""
        return all(
            number <= self._lowest.get(place, number) for place, number in epoch.reached.items()
        )

    def further(self, epoch: Epoch) -> bool:
        """Whether a commit reached something that none had before, and nothing less: the usual case."""
        furthest = [(number, self._furthest.get(place)) for place, number in epoch.reached.items()]
        ahead = any(most is None or number > most for number, most in furthest)
        return ahead and all(most is None or number >= most for number, most in furthest)

    def seen(self, rows: _Rows) -> dict[str, tuple[int, LoggedCommit]]:
        """How far the commits reached of which a reader sees a file, and which one did."""
        furthest: dict[str, tuple[int, LoggedCommit]] = {}
        for commit, epoch in self._commits:
            if any(rows.seen(file.path) for file in commit.added):
                for place, number in epoch.reached.items():
                    if place not in furthest or number > furthest[place][0]:
                        furthest[place] = (number, commit)
        return furthest


def _epoch(
    epoch: Epoch, commit: LoggedCommit, writer: _Writer, rows: _Rows, live: Mapping[str, int]
) -> Iterator[Duplicate]:
    """What a commit reaches that an earlier one had, whose rows are seen beside its own."""
    if not commit.added or writer.further(epoch):
        writer.add(commit, epoch)
        return
    furthest = writer.seen(rows)
    last = {place: furthest[place] for place in epoch.reached if place in furthest}
    back = [place for place, (most, _) in last.items() if epoch.reached[place] < most]
    repeated = len(last) == len(epoch.reached) and all(
        epoch.reached[place] == most for place, (most, _) in last.items()
    )
    begins = epoch.begins_again if writer.below_all(epoch) else ""
    right = begins if back else epoch.repeats
    if back or (repeated and last):
        place = back[0] if back else next(iter(last))
        most, where = last[place]
        yield Duplicate(
            "epoch",
            (where.name, commit.name),
            tuple(file.path for file in commit.added),
            sum(file.rows for file in commit.added),
            sum(file.path in live for file in commit.added),
            f"{epoch.writer}: {place} {epoch.reached[place]} comes after {place} {most}"
            + (f"; this is right if {right}" if right else ""),
            "compare the rows of the two commits; only rows that are there twice may be deleted, and "
            "one copy of each must stay.",
            certain=not right,
        )
    if back and right:
        writer.begin_again()
    writer.add(commit, epoch)


def _count(files: list[Any], one: str, many: str) -> str:
    return f"1 {one}" if len(files) == 1 else f"{len(files)} {many}"
