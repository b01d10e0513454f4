"""Writes ``docs/explanation/the-way-of-one-row.md`` from one traced epoch on a real PostgreSQL.

    python -m docs.make_way postgresql://...

The database should be empty. Of each module in which a line runs, the page has its first sentence and
the function that is called first.
"""

from __future__ import annotations

import ast
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from abs_sinks.postgres.testing import TableHarness, Variant
from abs_testing.engine import Run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "the-way-of-one-row.md"
FOLDERS = ("abs_core", "clients", "sinks")
STEPS = {
    "write": "A task writes a batch",
    "pre-commit": "The task pre-commits",
    "commit": "The coordinator decides and commits",
}
HEAD = """\
# The way of one row

What runs when a row goes to PostgreSQL by `protocol=2pc`: a later epoch of a job, when connections
are open and plans are made. `python -m docs.make_way` has traced it on a real server and wrote this
page; a test compares. Each step has the modules in the order in which they are entered, with the
function that is called first; follow the links from the top. Above them stands `abs_spark`, which
calls the same three: [design](design.md) has the floors, [the protocol](protocol.md) the words.
"""

Way = dict[str, dict[Path, str]]
"""For each step the modules, in order, and the function by which each is entered."""


class Tracer:
    """Notes each module of the product in which a function is called, and by which."""

    def __init__(self) -> None:
        self.entered: dict[Path, str] = {}
        self._product: dict[str, Path | None] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        path = self._module(code.co_filename) if event == "call" else None
        if path is not None and not code.co_qualname.startswith("<"):
            self.entered.setdefault(path, code.co_qualname.replace(".<locals>", ""))

    def _module(self, name: str) -> Path | None:
        if name not in self._product:
            path = Path(name)
            ours = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in FOLDERS
            ours = ours and path.name != "testing.py"
            self._product[name] = path.relative_to(ROOT) if ours else None
        return self._product[name]


@contextmanager
def traced() -> Iterator[dict[Path, str]]:
    tracer = Tracer()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        yield tracer.entered
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def way(url: str) -> Way:
    """One epoch of one row, traced."""
    harness = TableHarness(url, Variant("2pc", "append"))
    try:
        run = Run(harness.new_sink(), "job")
        run.epoch(0, [(1, "warm")])
        run.epoch(1, [(2, "warm")])
        attempt = run.attempt(2)
        with traced() as written:
            attempt.write((3, "a row"))
        with traced() as prepared:
            share = attempt.pre_commit()
        with traced() as committed:
            run.commit(2, [share])
        return dict(zip(STEPS, (written, prepared, committed), strict=True))
    finally:
        harness.close()


def sentence(path: Path) -> str:
    """The first one of a module's docstring."""
    text = ast.get_docstring(ast.parse((ROOT / path).read_text())) or ""
    first = re.match(r".+?[.:](?=\s|$)", " ".join(text.split()))
    return (first[0] if first else text).replace("``", "`").replace("|", "\\|").rstrip(".:")


def page(found: Way) -> str:
    parts = [HEAD]
    for step, title in STEPS.items():
        rows = [
            f"| [{path}](../../{path}) | `{function}` | {sentence(path)} |"
            for path, function in found[step].items()
        ]
        table = "\n".join(["| module | entered by | what it is |", "| --- | --- | --- |", *rows])
        parts.append(f"## {title}\n\n{len(rows)} modules.\n\n{table}\n")
    every = {path for step in found.values() for path in step}
    parts.append(f"Together {len(every)} modules.\n")
    return "\n".join(parts)


def main(write: Callable[[str], object] = PAGE.write_text) -> None:
    write(page(way(sys.argv[1])))


if __name__ == "__main__":
    main()
