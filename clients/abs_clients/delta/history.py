"""The commits of a Delta table, from its log alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from abs_clients.tablelog import Epoch, LoggedCommit, LoggedFile, TableHistory
from abs_core.errors import CorruptionError

_REMOVE = "a RemoveAction in deltalake's create_write_transaction"

_FILES = (
    "its rows were compacted into other files before it came back, and these are still read: compare "
    f"them, and take the file out of the table ({_REMOVE})."
)

_BRINGS_BACK = {"RESTORE", "CLONE"}
"""Operations that add files again on purpose."""


def history_of(
    log: Iterable[tuple[int, str]], before: Mapping[str, int], live: Iterable[str]
) -> TableHistory:
    """Read the log's versions in their order.

    Args:
        log: number and JSON lines of each version that is still there.
        before: rows of each file of the version before the first of them.
        live: the files of the newest version.
    """
    present, commits = set(before), list[LoggedCommit]()
    if before:
        files = tuple(LoggedFile(path, rows) for path, rows in before.items())
        commits.append(LoggedCommit("an older version", None, files))
    for version, lines in log:
        with _readable(version):
            actions = _actions(lines)
        info: dict[str, Any] = next((body for kind, body in actions if kind == "commitInfo"), {})
        removed = {unquote(body["path"]): body for kind, body in actions if kind == "remove"}
        adds = {unquote(body["path"]): body for kind, body in actions if kind == "add"}
        # One that is removed and added in one commit has a new deletion vector or new statistics.
        new = {path: add for path, add in adds.items() if path not in present}
        present = (present - set(removed)) | set(adds)
        brought_back = info.get("operation") in _BRINGS_BACK
        with _readable(version):
            added = tuple(_logged(path, add) for path, add in new.items() if not brought_back)
        commits.append(
            LoggedCommit(
                str(version),
                info.get("timestamp"),
                added,
                tuple(_epochs(actions, info)),
                removed=tuple(path for path in removed if path not in adds),
                restored=tuple(new) if brought_back else (),
                rewrites=not any(action.get("dataChange", True) for action in removed.values()),
                altered=tuple(path for path, add in adds.items() if add.get("deletionVector")),
            )
        )
    return TableHistory(tuple(commits), dict.fromkeys(live, 1), _FILES, _REMOVE)


def is_kept(
    history: Sequence[Mapping[str, Any]],
    version: int,
    table: Callable[[int], Any],
) -> bool | None:
    """Whether the newest version goes back to this one, and no RESTORE left it out; None: not told.

    Args:
        history: of the versions from this one on, newest first, as ``DeltaTable.history`` has them.
        table: as of a version.
    """
    commits = {int(commit["version"]): commit for commit in history}
    at = max(commits, default=-1)
    if not all(number in commits for number in range(version, at + 1)):
        return None if at >= version else False
    while at > version:
        if commits[at].get("operation") != "RESTORE":
            at -= 1
            continue
        asked = (commits[at].get("operationParameters") or {}).get("version")
        if asked is not None:
            at = int(asked)
            continue
        # To a time: Spark notes its text, and not the zone of the session that it is in. Nor are the
        # times of the log's files, which decided, in the log.
        restored, before = rows_of(table(at)), range(at - 1, version - 1, -1)
        at = next((number for number in before if rows_of(table(number)) == restored), -1)
    return at == version


def rows_of(table: Any) -> dict[str, int]:
    """The files of a version, each with its rows.

    Args:
        table: a ``DeltaTable`` of that version.
    """
    files = pa.table(table.get_add_actions()).select(["path", "num_records"])
    return {unquote(file["path"]): file["num_records"] or 0 for file in files.to_pylist()}


def _actions(lines: str) -> list[tuple[str, Any]]:
    return [action for line in lines.split("\n") if line for action in json.loads(line).items()]


@contextmanager
def _readable(version: int) -> Iterator[None]:
    """Raises CorruptionError where the version is no log of Delta's."""
    try:
        yield
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise CorruptionError(
            f"Version {version} of the table's log cannot be read: {type(error).__name__}: {error}.",
            remedy="look at its file in _delta_log: no writer of Delta's makes such a one.",
        ) from error


def _logged(path: str, add: Mapping[str, Any]) -> LoggedFile:
    stats: dict[str, Any] = json.loads(add.get("stats") or "{}")
    rows = int(stats.get("numRecords", 0))
    if not add.get("dataChange", True) or not stats.get("minValues"):
        return LoggedFile(path, rows)
    content = (add["size"], sorted((add.get("partitionValues") or {}).items()), stats)
    return LoggedFile(path, rows, json.dumps(content, sort_keys=True))


def _epochs(actions: Iterable[tuple[str, Any]], info: Mapping[str, Any]) -> Iterator[Epoch]:
    """Application transactions; where there is none, those of a streaming query of Spark."""
    marks = [body for kind, body in actions if kind == "txn"]
    for mark in marks:
        yield Epoch(f"application {mark['appId']}", {"version": int(mark["version"])})
    asked = info.get("operationParameters") or {}
    if not marks and "queryId" in asked and "epochId" in asked:
        yield Epoch(f"Spark query {asked['queryId']}", {"epoch": int(asked["epochId"])})
