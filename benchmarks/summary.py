"""``python -m benchmarks.summary``: README.md's table and the figures of all pages, from results/."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.pages import SENTENCES, Results, brought_up
from benchmarks.pages.figures import middle
from benchmarks.ratios import UNMETERED

HERE = Path(__file__).parent
ROOT = HERE.parent
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
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
    median = middle(samples)
    speed, cpu = median["amount"] / median["wall_s"], median["cpu_s"] / median["amount"] * 1e6
    spent = "" if cpu == UNMETERED else f", {cpu:,.2f} us CPU per {unit[:-1]}"
    return f"{speed:,.0f} {unit}/s{spent} (its median run)"


def main() -> None:
    """Rewrite what stands between the markers, and the figures in the pages."""
    documents = documents_in(HERE / "results")
    machine = ", ".join(f"{name} {value}" for name, value in _machine(documents).items())
    readme = HERE / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    text = f"{before}{BEGIN}\n\nMachine: {machine}.\n\n{summary(documents)}\n{END}{after}"
    readme.write_text(text)
    pages = {each.page: (ROOT / each.page).read_text() for each in SENTENCES}
    for page, text in brought_up(pages, Results(documents), SENTENCES).items():
        (ROOT / page).write_text(text)


if __name__ == "__main__":
    main()
