"""Results as a table for people and as JSON for programs, with all samples: spreads can be redone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.ratios import (
    NO_BAR,
    UNMETERED,
    Bar,
    Sample,
    Spread,
    Verdict,
    cpu_ratios,
    speed_ratios,
    spread,
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One ratio of two sides: how many times as fast ``ours`` is as ``theirs``."""

    ours: str
    theirs: str
    bar: Bar = NO_BAR


@dataclass(frozen=True, slots=True)
class Result:
    """What one benchmark found.

    Args:
        name: of the benchmark, and of the case where it has several.
        unit: what the samples' amounts count.
        samples: by side; those at the same place are of one round.
        comparisons: the ratios that matter.
        facts: what else was measured, by name.
        notes: what must be known to read the figures.
    """

    name: str
    unit: str
    samples: Mapping[str, Sequence[Sample]]
    comparisons: Sequence[Comparison]
    facts: Mapping[str, object] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def found(self, comparison: Comparison) -> Spread:
        """The spread of one ratio over the rounds."""
        pair = self.samples[comparison.ours], self.samples[comparison.theirs]
        return spread(speed_ratios(*pair))

    def cpu(self, comparison: Comparison) -> float | None:
        """Median ratio of CPU for the same amount; None where there was too little to measure."""
        ratios = cpu_ratios(self.samples[comparison.ours], self.samples[comparison.theirs])
        return median(ratios) if ratios else None

    def verdicts(self) -> list[Verdict]:
        return [comparison.bar.judge(self.found(comparison)) for comparison in self.comparisons]


def epoch_times(samples: Mapping[str, Sequence[Sample]], epochs: int = 1) -> dict[str, int]:
    """What an epoch takes on each side, as facts of a result.

    Args:
        epochs: of a sample.
    """
    return {
        f"ms of an epoch of {side} (median)": round(
            median(sample.wall_s for sample in found) * 1e3 / epochs
        )
        for side, found in samples.items()
    }


_COLOURS = {Verdict.MET: "green", Verdict.UNCLEAR: "yellow", Verdict.MISSED: "red"}


def _figure(cpu: float) -> str:
    return "-" if cpu == UNMETERED else f"{cpu:,.2f}"


def show(result: Result, console: Console) -> None:
    """Print sides, ratios, facts and notes."""
    sides = Table(title=f"[bold]{result.name}", title_justify="left")
    for header in (
        "side",
        f"{result.unit}/s (median)",
        "wall s",
        "CPU s",
        f"CPU us per {result.unit[:-1]}",
    ):
        sides.add_column(header, justify="left" if header == "side" else "right")
    for name, samples in result.samples.items():
        sides.add_row(
            name,
            f"{median(s.speed for s in samples):,.0f}",
            f"{median(s.wall_s for s in samples):.3f}",
            _figure(median(s.cpu_s for s in samples)),
            _figure(median(s.cpu_us_each for s in samples)),
        )
    console.print(sides)
    if result.comparisons:
        console.print(_ratio_table(result))
    for name, value in result.facts.items():
        console.print(f"{name}: {value}", highlight=False)
    for note in result.notes:
        console.print(f"[dim]{note}")
    console.print()


def _ratio_table(result: Result) -> Table:
    table = Table()
    for header in (
        "speed of",
        "over",
        "median",
        "quartiles",
        "min - max",
        "pairs",
        "CPU",
        "bar",
        "",
    ):
        table.add_column(header)
    for comparison in result.comparisons:
        found = result.found(comparison)
        verdict = comparison.bar.judge(found)
        colour = _COLOURS.get(verdict, "dim")
        table.add_row(
            comparison.ours,
            comparison.theirs,
            f"{found.median:.3f}",
            f"{found.q1:.3f} - {found.q3:.3f}",
            f"{found.least:.3f} - {found.most:.3f}",
            str(found.count),
            "-" if (cpu := result.cpu(comparison)) is None else f"x {cpu:.2f}",
            str(comparison.bar),
            f"[{colour}]{verdict}",
        )
    return table


def as_json(result: Result) -> dict[str, object]:
    """The result with ratios worked out and every sample."""
    return {
        "name": result.name,
        "unit": result.unit,
        "ratios": [
            {
                "speed of": comparison.ours,
                "over": comparison.theirs,
                **asdict(result.found(comparison)),
                "cpu": result.cpu(comparison),
                "bar": str(comparison.bar),
                "verdict": comparison.bar.judge(result.found(comparison)),
            }
            for comparison in result.comparisons
        ],
        "facts": dict(result.facts),
        "notes": list(result.notes),
        "samples": {
            side: [{**asdict(sample), "parts": dict(sample.parts)} for sample in samples]
            for side, samples in result.samples.items()
        },
    }


def save(path: Path, document: Mapping[str, object]) -> None:
    """Write a JSON document, replacing what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, default=str) + "\n")
