"""Which files are in which epoch, as Spark's own checkpoint says; and what each target has of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from abs_audit import EpochFound, Files, Relation, audit_epochs
from abs_core.errors import CorruptionError
from abs_core.strictjson import parse

_COMPACT = ".compact"


def files_of_epochs(checkpoint: Path) -> dict[int, tuple[str, ...]]:
    """The files of each epoch of a query that reads one folder of files.

    Spark notes in ``offsets/N`` up to which entry of its list of files epoch N goes, and the list in
    ``sources/0``, where every tenth file repeats all entries before it.

    Raises:
        CorruptionError: the checkpoint is no such query's.
    """
    ends = {
        int(path.name): _number(path.read_text().splitlines()[-1], "logOffset", path)
        for path in (checkpoint / "offsets").iterdir()
        if path.name.isdecimal()
    }
    entries: dict[int, set[str]] = {}
    for path in (checkpoint / "sources" / "0").iterdir():
        if path.name.removesuffix(_COMPACT).isdecimal():
            for line in path.read_text().splitlines()[1:]:
                entry = _number(line, "batchId", path)
                entries.setdefault(entry, set()).add(_local(str(_field(line, "path", path))))
    found: dict[int, tuple[str, ...]] = {}
    for epoch, end in ends.items():
        begin = ends.get(epoch - 1, None if epoch else -1)
        if begin is not None:  # else Spark has deleted what tells where it began
            files = (entries.get(entry, set()) for entry in range(begin + 1, end + 1))
            found[epoch] = tuple(sorted(set().union(*files)))
    return found


def audited_epochs(
    checkpoint: Path, targets: Mapping[str, Relation], frontier: int | None
) -> list[EpochFound]:
    """What each target has of each epoch.

    Args:
        frontier: of the job's register.
    """
    epochs = {epoch: Files(files) for epoch, files in files_of_epochs(checkpoint).items()}
    return audit_epochs(epochs, targets, frontier)


def _field(line: str, name: str, path: Path) -> object:
    try:
        return parse(line)[name]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(
            f"{path} is not what Spark writes for a source of files: it has no field {name!r}.",
            remedy="audit the targets as wholes, with `abs audit`.",
        ) from error


def _number(line: str, name: str, path: Path) -> int:
    return int(str(_field(line, name, path)))


def _local(uri: str) -> str:
    return unquote(urlsplit(uri).path)
