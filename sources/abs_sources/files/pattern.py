"""Matches the files of a source by folder, glob or file name, as Spark's file sources do.

Names that begin with ``_`` or ``.``, or end with ``._COPYING_``, are hidden, with all that is in a
hidden folder, unless the path itself names it. Globs are Hadoop's: ``*``, ``?``, ``[a-z]``,
``{a,b}``, each within one name, ``[^a]`` or ``[!a]`` for any other character; a backslash escapes.
Folders ``column=value`` of a partitioned data set are searched at any depth.
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
_GLOB_SIGNS = re.compile(r"([*?\[\]{}\\])")
_COMMA = re.compile(r"(?<!\\),")
_SLASH_IN_BRACES = re.compile(r"(?<!\\)\{[^{}]*/[^{}]*\}")


@dataclass(frozen=True, slots=True)
class Pattern:
    """Matches files below a root.

    Args:
        root: the path before its first wildcard, without a slash at its end.
        levels: for each further name, the globs of which one must match.
        names: globs for a file's name (``pathGlobFilter``); None: any.
        recursive: include files below the folders that the path names.
    """

    root: str
    levels: tuple[tuple[str, ...], ...] = ()
    names: tuple[str, ...] | None = None
    recursive: bool = False

    @classmethod
    def parse(cls, path: str, names: str | None = None, *, recursive: bool = False) -> Pattern:
        """Parse the user's path, absolute or a key."""
        parts = path.rstrip("/").split("/")
        plain = next((n for n, p in enumerate(parts) if not _IS_PLAIN.fullmatch(p)), len(parts))
        return cls(
            root=_ESCAPED.sub(r"\1", "/".join(parts[:plain])),
            levels=tuple(_alternatives(part) for part in parts[plain:] if part),
            names=None if names is None else _alternatives(names),
            recursive=recursive,
        )

    def wants(self, path: str) -> bool:
        """Whether the file (path below the root; empty for the root itself) belongs to the source."""
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
        """Whether a folder below the root can contain files of the source."""
        return self._looks_into(folder.split("/"))

    def _looks_into(self, folders: list[str]) -> bool:
        named, deeper = folders[: len(self.levels)], folders[len(self.levels) :]
        levels = zip(named, self.levels, strict=False)
        return (
            not any(is_hidden(name) and not _names_hidden(globs) for name, globs in levels)
            and not any(is_hidden(folder) for folder in deeper)
            and all(_matches(name, globs) for name, globs in zip(named, self.levels, strict=False))
            and (self.recursive or all("=" in name for name in deeper))
        )


def check_glob(path: str) -> None:
    """Raise ``ValueError`` for a glob that Spark would understand differently."""
    if _SLASH_IN_BRACES.search(path):
        raise ValueError(
            "a path without a slash in braces: one path for each, or braces within a name"
        )


def literal(path: str) -> str:
    """The glob that names exactly this path."""
    return _GLOB_SIGNS.sub(r"\\\1", path)


def _names_hidden(globs: tuple[str, ...]) -> bool:
    """Whether a glob says itself that a name is hidden: ``_in*``."""
    return any(glob[:1] in ("_", ".") for glob in globs)


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
    """A character set as a regular expression; a reversed range matches nothing."""
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
    match = _BRACES.search(glob)
    if match is None:
        return (glob,)
    before, after = glob[: match.start()], glob[match.end() :]
    return tuple(
        expanded
        for choice in _COMMA.split(match[1])
        for expanded in _alternatives(f"{before}{choice}{after}")
    )
