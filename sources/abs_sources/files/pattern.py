"""Which files belong to a source: a folder, a glob, or one file. As Spark's file sources choose.

Names that begin with ``_`` or ``.``, or end with ``._COPYING_``, are hidden, and so is all that is in
a hidden folder; unless the path itself names that folder. Globs are Hadoop's: ``*``, ``?``, ``[a-z]``,
``{a,b}``, each within one name, ``[^a]`` or ``[!a]`` for any other character; a backslash before one
of these signs takes it as it is. Folders called ``column=value`` are those of a partitioned data set:
they are looked into, however deep.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from abs_clients.hidden import is_hidden

_SIGNS = r"*?\[\]{},!^\\-"
_PLAIN = rf"(?:\\[{_SIGNS}]|[^*?\[{{\\]|\\)*"
_IS_PLAIN = re.compile(_PLAIN, re.DOTALL)
_ESCAPED = re.compile(rf"\\([{_SIGNS}])")
_BRACES = re.compile(r"(?<!\\)\{((?:\\.|[^{}\\])*)\}", re.DOTALL)
_SET = re.compile(r"\[([!^]?)((?:\\.|[^\\\]])(?:\\.|[^\\\]])*)\]", re.DOTALL)
_COMMA = re.compile(r"(?<!\\),")
_SLASH_IN_BRACES = re.compile(r"(?<!\\)\{[^{}]*/[^{}]*\}")


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
        plain = next((n for n, p in enumerate(parts) if not _IS_PLAIN.fullmatch(p)), len(parts))
        return cls(
            root=_ESCAPED.sub(r"\1", "/".join(parts[:plain])),
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


def check_glob(path: str) -> None:
    """Raises ``ValueError`` where a glob would mean something else here than it does to Spark."""
    if _SLASH_IN_BRACES.search(path):
        raise ValueError(
            "a path without a slash in braces: one path for each, or braces within a name"
        )


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(_compiled(glob).fullmatch(name) for glob in globs)


@lru_cache(maxsize=1024)
def _compiled(glob: str) -> re.Pattern[str]:
    made, at = "", 0
    while at < len(glob):
        one, chosen = glob[at], _SET.match(glob, at)
        if escaped := _ESCAPED.match(glob, at):
            made, at = made + re.escape(escaped[1]), escaped.end()
        elif chosen is not None:
            made, at = made + _set(chosen), chosen.end()
        else:
            made, at = made + {"*": ".*", "?": "."}.get(one, re.escape(one)), at + 1
    return re.compile(made, re.DOTALL)


def _set(chosen: re.Match[str]) -> str:
    """A set of characters; a range whose end comes before its beginning holds none."""
    members = re.findall(r"\\?(.)(?:-\\?(.))?", chosen[2], re.DOTALL)
    kept = [
        f"{re.escape(first)}-{re.escape(last)}" if last else re.escape(first)
        for first, last in members
        if not last or first <= last
    ]
    if not kept:
        return "." if chosen[1] else r"(?!)"
    return f"[{'^' if chosen[1] else ''}{''.join(kept)}]"


def _alternatives(glob: str) -> tuple[str, ...]:
    found = _BRACES.search(glob)
    if found is None:
        return (glob,)
    before, after = glob[: found.start()], glob[found.end() :]
    return tuple(
        expanded
        for choice in _COMMA.split(found[1])
        for expanded in _alternatives(f"{before}{choice}{after}")
    )
