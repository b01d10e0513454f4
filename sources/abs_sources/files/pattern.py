"""Which files belong to a source: a folder, a glob, or one file. As Spark's file sources choose.

Names that begin with ``_`` or ``.``, or end with ``._COPYING_``, are hidden, and so is all that is in
a hidden folder; unless the path itself names that folder. Globs are Hadoop's: ``*``, ``?``, ``[a-z]``,
``{a,b}``, each within one name. Folders called ``column=value`` are those of a partitioned data set:
they are looked into, however deep.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

from abs_clients.hidden import is_hidden

_WILD = re.compile(r"[*?\[{]")
_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Pattern:
    """Of files below a root.

    Args:
        root: the part of the path before its first wildcard, without a slash at its end.
        levels: for each name after it, the globs of which one must match.
        names: globs for the name of a file (``pathGlobFilter``); None: any.
        recursive: whether files deeper than the folders that the path names belong, too.
    """

    root: str
    levels: tuple[tuple[str, ...], ...] = ()
    names: tuple[str, ...] | None = None
    recursive: bool = False

    @classmethod
    def parse(cls, path: str, names: str | None = None, *, recursive: bool = False) -> Pattern:
        """From a path, absolute or a key, as the user wrote it."""
        parts = path.rstrip("/").split("/")
        plain = next((n for n, part in enumerate(parts) if _WILD.search(part)), len(parts))
        return cls(
            root="/".join(parts[:plain]),
            levels=tuple(_alternatives(part) for part in parts[plain:] if part),
            names=None if names is None else _alternatives(names),
            recursive=recursive,
        )

    def wants(self, path: str) -> bool:
        """Whether the file belongs to the source.

        Args:
            path: below the root; empty for the root itself.
        """
        if not path:
            name = self.root.rsplit("/", 1)[-1]
            return not self.levels and (self.names is None or _matches(name, self.names))
        *folders, name = path.split("/")
        return (
            len(folders) + 1 >= len(self.levels)
            and not is_hidden(name)
            and (not folders or self._looks_into(folders))
            and (len(folders) >= len(self.levels) or _matches(name, self.levels[-1]))
            and (self.names is None or _matches(name, self.names))
        )

    def enters(self, folder: str) -> bool:
        """Whether a folder below the root can hold files that belong to the source."""
        return self._looks_into(folder.split("/"))

    def _looks_into(self, folders: list[str]) -> bool:
        named, deeper = folders[: len(self.levels)], folders[len(self.levels) :]
        return (
            not any(is_hidden(folder) for folder in folders)
            and all(_matches(name, globs) for name, globs in zip(named, self.levels, strict=False))
            and (self.recursive or all("=" in name for name in deeper))
        )


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _alternatives(glob: str) -> tuple[str, ...]:
    found = _BRACES.search(glob)
    if found is None:
        return (glob,)
    before, after = glob[: found.start()], glob[found.end() :]
    return tuple(
        expanded
        for choice in found[1].split(",")
        for expanded in _alternatives(f"{before}{choice}{after}")
    )
