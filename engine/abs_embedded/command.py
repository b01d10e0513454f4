"""``abs trace``: draws one checkpoint of an embedded job as a timeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from xml.sax.saxutils import escape

import typer
from rich import markup

from abs_cli.output import AsJson, report
from abs_core.errors import ConfigError
from abs_embedded.trace import Timeline, checkpoints, read, timeline

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 900, 150, 20, 90, 22
"""Of the picture, in pixels: the names of the tasks stand left, those of the events above."""


def trace(
    path: Annotated[Path, typer.Argument(help="A file of `abs_embedded.trace.Trace.write`.")],
    out: Annotated[Path, typer.Option(help="The picture: a name that ends in .svg.")] = Path(
        "trace.svg"
    ),
    checkpoint: Annotated[
        int | None,
        typer.Option(help="The number of the checkpoint. Default: the last committed one."),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Draw one checkpoint of an embedded job: barriers, alignment, persisting, decision, commit."""
    if out.suffix != ".svg":
        raise ConfigError(f"{out} is no name of a picture.", remedy="choose one that ends in .svg.")
    moments = read(path)
    chosen = checkpoint if checkpoint is not None else max(checkpoints(moments), default=0)
    shown = timeline(moments, chosen)
    try:
        draw(shown, out)
    except OSError as error:
        raise ConfigError(
            f"The picture {out} cannot be written: {error}.",
            remedy="name a file in a folder that exists and can be written.",
        ) from error
    text = f"checkpoint {chosen}: {markup.escape(str(out))}"
    report(text, as_json=as_json, did="drawn", checkpoint=chosen, file=str(out))


def draw(shown: Timeline, out: Path) -> None:
    """Write the picture as SVG. Raises OSError."""
    out.write_text(picture(shown), "utf-8")


def picture(shown: Timeline) -> str:
    """A bar for each task: from its first barrier to its copy, and until that is durable."""
    ends = [span.persisted or span.copied or span.first for span in shown.spans]
    end = max([*ends, *(seconds for _, seconds in shown.marks), 1e-6])
    bottom = _TOP + _ROW * len(shown.spans)

    def x(seconds: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * seconds / end

    def bar(top: int, begin: float, over: float, color: str) -> str:
        width = max(x(over) - x(begin), 1.0)
        return (
            f'<rect x="{x(begin):.1f}" y="{top}" width="{width:.1f}" height="14" fill="{color}"/>'
        )

    def text(left: float, top: float, said: str, more: str = "") -> str:
        return f'<text x="{left:.1f}" y="{top:.1f}" {more}>{escape(said)}</text>'

    drawn = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 50}" '
            'font-family="sans-serif" font-size="12">'
        ),
        '<rect width="100%" height="100%" fill="white"/>',
        text(
            _LEFT,
            16,
            f"checkpoint {shown.checkpoint}: orange until aligned and copied, blue until durable",
        ),
    ]
    for row, span in enumerate(shown.spans):
        top = _TOP + _ROW * row
        copied = span.copied if span.copied is not None else span.first
        drawn += [text(4, top + 12, span.task), bar(top, span.first, copied, "#d98c21")]
        if span.persisted is not None:
            drawn.append(bar(top, copied, span.persisted, "#4a7fb5"))
    for event, seconds in shown.marks:
        at = f"{x(seconds):.1f}"
        drawn.append(f'<path d="M{at},{_TOP - 6}V{bottom}" stroke="#666666" stroke-width="0.8"/>')
        turned = f'transform="rotate(-40 {at} {_TOP - 8})" font-size="10"'
        drawn.append(text(x(seconds), _TOP - 8, event, turned))
    for tenth in range(0, 11, 2):
        seconds = end * tenth / 10
        drawn.append(text(x(seconds), bottom + 18, f"{seconds * 1000:.3g}", 'text-anchor="middle"'))
    axis = "milliseconds since the coordinator began the checkpoint"
    return "\n".join([*drawn, text(_LEFT, bottom + 40, axis), "</svg>"]) + "\n"
