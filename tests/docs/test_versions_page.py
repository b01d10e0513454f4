"""Pages and files that are written from what the tests run, and from the pages, are up to date."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def made(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / f"make_{name}.py"))


def test_the_page_of_versions_is_written_from_what_the_tests_run() -> None:
    written = (ROOT / "docs" / "reference" / "versions.md").read_text()
    assert written == made("versions")["page"](), "run: python -m docs.make_versions"


def test_the_bill_of_materials_has_the_versions_that_the_tests_run() -> None:
    written = (ROOT / "docs" / "reference" / "abs-sinks.cdx.json").read_text()
    assert written == made("sbom")["text"](), "run: python -m docs.make_sbom"
    components = {one["name"]: one for one in json.loads(written)["components"]}
    assert {
        "numpy",
        "pyarrow",
        "psycopg",
        "confluent-kafka",
        "boto3",
        "deltalake",
        "pyiceberg",
    } <= {*components}
    assert not {"pyspark", "pytest", "duckdb", "typer"} & {*components}, "no tool, and no runtime"


def test_llms_txt_names_every_page_with_its_first_sentence() -> None:
    written = (ROOT / "llms.txt").read_text()
    assert written == made("llms")["text"](), "run: python -m docs.make_llms"
    pages = [*(ROOT / "docs").rglob("*.md")]
    names = {str(page.relative_to(ROOT)) for page in pages} - {"docs/contents.md"}
    assert {name for name in names if f"({name})" not in written} == set()
    assert not [line for line in written.splitlines() if line.endswith(": ")]
