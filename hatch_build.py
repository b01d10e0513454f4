"""Makes the README of a wheel, whose links lead somewhere on an index that has no other files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PROJECT_URL = "ABS_PROJECT_URL"
"""The repository's address, for a build that is published, such as https://github.com/NAME/abs-sinks."""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")


def published(text: str, url: str, release: str) -> str:
    """The text with absolute links to this release; without an address, their words alone."""

    def link(found: re.Match[str]) -> str:
        image, words, path = found.groups()
        if not url:
            return "" if image else words
        return f"{image}[{words}]({url.rstrip('/')}/{'raw' if image else 'blob'}/v{release}/{path})"

    return _LINK.sub(link, text)


class Readme(MetadataHookInterface):
    """Hatchling's hook: the field ``readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        text = (root / "README.md").read_text("utf-8")
        release = re.search(
            r'^RELEASE = "(.+)"', (root / "abs_core/release.py").read_text(), re.MULTILINE
        )
        assert release is not None
        made = published(text, os.environ.get(PROJECT_URL, ""), release[1])
        metadata["readme"] = {"content-type": "text/markdown", "text": made}
