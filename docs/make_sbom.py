"""Writes ``docs/reference/abs-sinks.cdx.json``: what the wheel brings, as a CycloneDX document.

    python -m docs.make_sbom

It lists the packages that the base and the extras of a job need, in the versions that the tests run
(``requirements.lock``), and who needs whom. A wheel has it in its folder ``.dist-info/sboms``, where
scanners look (PEP 770). PySpark is a runtime's own and is left out.
"""

from __future__ import annotations

import json
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from docs.make_versions import locked

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "abs-sinks.cdx.json"
EXTRAS = (
    "postgres",
    "kafka",
    "msk",
    "avro",
    "s3",
    "delta",
    "iceberg",
    "iceberg-sql",
    "openlineage",
)
"""Of a job; the other extras are tools, and PySpark."""


def needs(package: Distribution, extras: frozenset[str]) -> set[tuple[str, frozenset[str]]]:
    """What it needs on the machine that runs this, with the extras of that."""
    wanted = set()
    for one in map(Requirement, package.requires or ()):
        chosen = (
            one.marker is None
            or one.marker.evaluate({"extra": ""})
            or any(one.marker.evaluate({"extra": extra}) for extra in extras)
        )
        if chosen:
            wanted.add((canonicalize_name(one.name), frozenset(one.extras)))
    return wanted


def document() -> dict[str, Any]:
    lock, edges = locked(), dict[str, set[str]]()
    ours = canonicalize_name("abs-sinks")
    todo = {(ours, frozenset(EXTRAS))}
    done = set[tuple[str, frozenset[str]]]()
    while todo:
        name, extras = todo.pop()
        done.add((name, extras))
        after = {(n, e) for n, e in needs(distribution(name), extras) if n == ours or n in lock}
        edges.setdefault(name, set()).update(n for n, _ in after if n != name)
        todo |= after - done
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": ours,
                "name": ours,
                "version": distribution(ours).version,
            }
        },
        "components": [_component(name, lock[name]) for name in sorted(edges) if name != ours],
        "dependencies": [{"ref": n, "dependsOn": sorted(edges[n])} for n in sorted(edges)],
    }


def _component(name: str, version: str) -> dict[str, Any]:
    described = distribution(name).metadata
    licence = described.get("License-Expression") or described.get("License") or ""
    component: dict[str, Any] = {"type": "library", "bom-ref": name, "name": name}
    component |= {"version": version, "purl": f"pkg:pypi/{name}@{version}"}
    if licence and len(licence) < 60:  # some packages write the whole text there
        component["licenses"] = [{"license": {"name": licence}}]
    return component


def text() -> str:
    return json.dumps(document(), indent=1) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text())
