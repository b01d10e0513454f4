"""``python -m benchmarks.summary``: the page of all figures, and the README's table, from results/."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.ages import ages
from benchmarks.ratios import UNMETERED
from benchmarks.readme import brought_up

HERE = Path(__file__).parent
ROOT = HERE.parent
FIGURES = ROOT / "docs" / "reference" / "figures.md"
HEAD = """# All figures

This page is made by `python -m benchmarks.summary` from `benchmarks/results/`. What each benchmark
measures, and how to read a ratio: [benchmarks](../../benchmarks/README.md). CPU is how many times as
much CPU the first side took for the same amount.
"""
_HEADER = (
    "| speed of | over | median | quartiles | min - max | pairs | CPU | bar | |",
    "|---|---|---|---|---|---|---|---|---|",
)


def summary(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown of what ``--json`` or results/ hold, by benchmark."""
    return "\n".join(line for document in documents.values() for line in _benchmark(document))


def documents_in(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Every benchmark of ratios in the folder, by name; files of another shape are left out."""
    files = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    every = (named for file in files for named in file.items())
    return {name: doc for name, doc in every if isinstance(doc, Mapping) and "results" in doc}


def _benchmark(document: Mapping[str, Any]) -> Iterator[str]:
    for result in document["results"]:
        yield f"### {result['name']}\n"
        yield from (*_HEADER, *map(_ratio, result["ratios"]), "")
        for side, samples in result["samples"].items():
            yield f"- {side}: {_rate(samples, result['unit'])}"
        for name, value in result["facts"].items():
            yield f"- {name}: {value}"
        yield ""
    loads = f"{document['load before']} before, {document['load after']} after"
    commit = document.get("environment", {}).get("commit", "not noted")
    command = document.get("command", "command not noted")
    took = f", {document['seconds']} s" if "seconds" in document else ""
    yield f"`{command}`, {document['started']} at commit {commit}{took}; load {loads}.\n"


def _machine(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """What every benchmark noted of its machine, the first's where they differ."""
    facts: dict[str, str] = {}
    for document in documents.values():
        facts = {**document.get("environment", {}), **facts}
    facts.pop("commit", None)
    return facts


def _ratio(ratio: Mapping[str, Any]) -> str:
    cells = [
        ratio["speed of"],
        ratio["over"],
        f"**{ratio['median']:.3f}**",
        f"{ratio['q1']:.3f} - {ratio['q3']:.3f}",
        f"{ratio['least']:.3f} - {ratio['most']:.3f}",
        str(ratio["count"]),
        "-" if ratio["cpu"] is None else f"x {ratio['cpu']:.2f}",
        ratio["bar"],
        ratio["verdict"],
    ]
    return f"| {' | '.join(cells)} |"


def _rate(samples: list[Mapping[str, Any]], unit: str) -> str:
    by_time = sorted(samples, key=lambda each: float(each["wall_s"]))
    median = by_time[len(by_time) // 2]
    speed, cpu = median["amount"] / median["wall_s"], median["cpu_s"] / median["amount"] * 1e6
    spent = "" if cpu == UNMETERED else f", {cpu:,.2f} us CPU per {unit[:-1]}"
    return f"{speed:,.0f} {unit}/s{spent} (its median run)"


def figures_page(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """The page of all figures, without their ages."""
    machine = ", ".join(f"{name} {value}" for name, value in _machine(documents).items())
    return f"{HEAD}\nMachine: {machine}.\n\n{summary(documents)}".rstrip("\n") + "\n"


def main() -> None:
    """Rewrite the page of all figures, and the table in the README."""
    documents = documents_in(HERE / "results")
    FIGURES.write_text(f"{figures_page(documents)}\n{ages(documents)}")
    readme = ROOT / "README.md"
    readme.write_text(brought_up(readme.read_text(), documents))


if __name__ == "__main__":
    main()
