"""``abs trace``: draws one checkpoint of an embedded job as a timeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from abs_cli.output import AsJson, report
from abs_core.errors import ConfigError

if TYPE_CHECKING:
    from abs_embedded.trace import Timeline


def trace(
    path: Annotated[Path, typer.Argument(help="A file of `abs_embedded.trace.Trace.write`.")],
    out: Annotated[Path, typer.Option(help="The picture: .png, .svg or .pdf.")] = Path("trace.png"),
    checkpoint: Annotated[
        int | None,
        typer.Option(help="The number of the checkpoint. Default: the last committed one."),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Draw one checkpoint of an embedded job: barriers, alignment, persisting, decision, commit."""
    from abs_embedded.trace import checkpoints, read, timeline

    moments = read(path)
    chosen = checkpoint if checkpoint is not None else max(checkpoints(moments), default=0)
    shown = timeline(moments, chosen)
    try:
        draw(shown, out)
    except (ImportError, OSError, ValueError) as error:
        raise ConfigError(
            f"The picture {out} cannot be drawn: {error}.",
            remedy="this needs matplotlib (`pip install 'abs-sinks[embedded]'`), an existing folder, "
            "and a name that ends in .png, .svg or .pdf.",
        ) from error
    text = f"checkpoint {chosen}: {escape(str(out))}"
    report(text, as_json=as_json, did="drawn", checkpoint=chosen, file=str(out))


def draw(shown: Timeline, out: Path) -> None:
    """Draw a bar for each task: from its first barrier to its copy, and until that is durable."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 0.32 * len(shown.spans)), layout="constrained")
    axes = figure.subplots()
    for row, span in enumerate(shown.spans):
        first, copied = span.first * 1000, (span.copied or span.first) * 1000
        axes.barh(row, max(copied - first, 0.02), left=first, color="#d98c21", height=0.6)
        if span.persisted is not None:
            width = max(span.persisted * 1000 - copied, 0.02)
            axes.barh(row, width, left=copied, color="#4a7fb5", height=0.6)
    for what, seconds in shown.marks:
        axes.axvline(seconds * 1000, color="#666666", linewidth=0.8)
        axes.annotate(what, (seconds * 1000, -0.9), rotation=30, fontsize=7, annotation_clip=False)
    axes.set_yticks(range(len(shown.spans)), [span.task for span in shown.spans])
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds since the coordinator began the checkpoint")
    axes.set_title(
        f"checkpoint {shown.checkpoint}: orange until aligned and copied, blue until durable\n",
        fontsize=9,
    )
    figure.savefig(out, dpi=130)
