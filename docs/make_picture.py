"""Writes ``docs/images/demo.svg``: the end of a run of the demo, as a terminal shows it.

    abs demo --route epoch --seed 7 > run.txt      # on a terminal of 102 columns
    python docs/make_picture.py < run.txt

``docs/images/demo.txt`` is the run that the picture shows.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).parent / "images"
TITLE = "abs demo --route epoch --seed 7"
STYLES = {
    r"SIGKILL #.*?(?= │)": "red",
    r"(?<=    )recovery: .*?(?= │)": "green",
    "CLEAN": "bold green",
}


def picture(run: str) -> str:
    """The output as SVG, in a font that every reader has."""
    console = Console(record=True, width=102, file=io.StringIO(), color_system="truecolor")
    for line in run.splitlines():
        shown = Text(line)
        for pattern, style in STYLES.items():
            shown.highlight_regex(pattern, style)
        console.print(shown, soft_wrap=True)
    made = console.export_svg(title=TITLE, unique_id="demo")
    made = re.sub(r"\s*@font-face \{.*?\}", "", made, flags=re.DOTALL)  # they name another site
    return made.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")


def main() -> None:
    run = sys.stdin.read()
    (IMAGES / "demo.txt").write_text(run)
    (IMAGES / "demo.svg").write_text(picture(run))


if __name__ == "__main__":
    main()
