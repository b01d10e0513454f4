"""The records of each epoch of a query that reads one folder of files, as Spark's checkpoint tells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from abs_audit.files import Files
from abs_core.errors import ConfigError
from abs_core.strictjson import parse

_COMPACT = ".compact"
_AS_WHOLES = "audit the targets as wholes (without --epochs): their epochs cannot be told here."


def epochs_in(checkpoint: str) -> dict[int, Files]:
    """The records of each epoch that has any, by its number.

    Args:
        checkpoint: the query's ``checkpointLocation``, on this machine.

    Raises:
        ConfigError: there is no such folder here, or the query does not read one folder of files.
    """
    folder = Path(_local(checkpoint) if checkpoint.startswith("file:") else checkpoint)
    if not (folder / "offsets").is_dir():
        raise ConfigError(
            f"There is no checkpoint at {checkpoint}, or it cannot be read from here.",
            remedy="copy it to a folder of this machine, or audit the targets as wholes.",
        )
    return {epoch: Files(files) for epoch, files in files_of_epochs(folder).items() if files}


def files_of_epochs(checkpoint: Path) -> dict[int, tuple[str, ...]]:
    """The files of each epoch of a query that reads one folder of files.

    Spark notes in ``offsets/N`` up to which entry of its list of files epoch N goes, and the list in
    ``sources/0``, where every tenth file repeats all entries before it.

    Raises:
        ConfigError: the checkpoint is no such query's.
    """
    ends = {
        int(path.name): _number(_only(path.read_text().splitlines()[2:], path), "logOffset", path)
        for path in (checkpoint / "offsets").iterdir()
        if path.name.isdecimal()
    }
    entries: dict[int, set[str]] = {}
    for path in (checkpoint / "sources" / "0").iterdir():
        if path.name.removesuffix(_COMPACT).isdecimal():
            for line in path.read_text().splitlines()[1:]:
                entry = _number(line, "batchId", path)
                entries.setdefault(entry, set()).add(_local(str(_field(line, "path", path))))
    by_epoch: dict[int, tuple[str, ...]] = {}
    for epoch, end in ends.items():
        begin = ends.get(epoch - 1, None if epoch else -1)
        if begin is not None:  # else Spark has deleted what tells where it began
            files = (entries.get(entry, set()) for entry in range(begin + 1, end + 1))
            by_epoch[epoch] = tuple(sorted(set().union(*files)))
    return by_epoch


def _only(lines: Sequence[str], path: Path) -> str:
    """The offset of the only source."""
    if len(lines) != 1:
        raise ConfigError(f"The query reads {len(lines)} sources: {path}.", remedy=_AS_WHOLES)
    return lines[0]


def _field(line: str, name: str, path: Path) -> object:
    try:
        return parse(line)[name]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"The query does not read a folder of files: {path} has no field {name!r}.",
            remedy=_AS_WHOLES,
        ) from error


def _number(line: str, name: str, path: Path) -> int:
    return int(str(_field(line, name, path)))


def _local(uri: str) -> str:
    return unquote(urlsplit(uri).path)
