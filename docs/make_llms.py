"""Writes ``llms.txt``, for programs that read: what this is, and each page with its first sentence.

python -m docs.make_llms
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "llms.txt"
SECTIONS = {
    "Tutorial": "tutorial",
    "How-to": "how-to",
    "Reference": "reference",
    "Explanation": "explanation",
}
HEAD = """\
# abs-sinks

> Exactly-once sinks for PostgreSQL, Kafka, S3, Delta and Iceberg in PySpark Structured Streaming,
> alone or several under one decision, with an audit that compares what went in with what is there.

Begin with [for agents](docs/how-to/for-agents.md) if you write code, with
[errors](docs/reference/errors.md) if you have a message.
"""


def entry(page: Path) -> str:
    text = page.read_text()
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    assert title is not None, page
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    body = re.sub(r"^(?:[#|>!]|    ).*$", "", prose, flags=re.MULTILINE)
    paragraphs = [" ".join(part.split()) for part in body.split("\n\n") if part.strip()]
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", paragraphs[0]) if paragraphs else ""
    first = re.match(r".+?[.:](?= |$)", plain)
    return f"- [{title[1]}]({page.relative_to(ROOT)}): {first[0] if first else plain}"


def text() -> str:
    parts = [HEAD]
    for section, folder in SECTIONS.items():
        pages = sorted((ROOT / "docs" / folder).glob("*.md"))
        parts.append(f"## {section}\n\n" + "\n".join(map(entry, pages)) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    FILE.write_text(text())
