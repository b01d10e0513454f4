"""Figures in the pages, taken from results/: ``python -m benchmarks.summary`` writes them there.

A page's sentence stands here with ``{}`` in place of each figure. So a figure cannot stay behind the
results, and a test fails where one was typed in. What a sentence says of its figures in words is not
checked: read it when they have changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_NUMBER = r"([+-]?\d[\d,]*(?:\.\d+)?)"


class Results:
    """What benchmarks have left, by the names in it.

    Args:
        documents: by benchmark, as ``summary.documents_in`` reads them.
    """

    def __init__(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        self._results = {
            each["name"]: each for one in documents.values() for each in one["results"]
        }

    def ratio(self, result: str, speed_of: str, over: str) -> Mapping[str, Any]:
        """Median, quartiles (q1, q3), count and CPU of a comparison."""
        found: Mapping[str, Any]
        (found,) = (
            each
            for each in self._results[result]["ratios"]
            if (each["speed of"], each["over"]) == (speed_of, over)
        )
        return found

    def median(self, result: str, speed_of: str, over: str) -> float:
        return float(self.ratio(result, speed_of, over)["median"])

    def spread(self, result: str, speed_of: str, over: str, digits: int = 2) -> Iterator[str]:
        """Median and quartiles of a comparison, as they stand in a page."""
        found = self.ratio(result, speed_of, over)
        yield from (f"{found[name]:.{digits}f}" for name in ("median", "q1", "q3"))

    def fact(self, result: str, name: str) -> Any:
        return self._results[result]["facts"][name]

    def numbers(self, result: str, name: str) -> list[float]:
        """The numbers in a fact, in their order."""
        found = re.findall(_NUMBER, str(self.fact(result, name)))
        return [float(each.replace(",", "")) for each in found]

    def speed(self, result: str, side: str) -> float:
        """A side's median run, in million rows a second."""
        sample = self.middle(result, side)
        return float(sample["amount"] / sample["wall_s"] / 1e6)

    def middle(self, result: str, side: str) -> Mapping[str, Any]:
        """A side's median sample: wall_s, cpu_s, amount."""
        return middle(self._results[result]["samples"][side])


def middle(samples: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The median sample, by its time."""
    by_time = sorted(samples, key=lambda each: each["wall_s"])
    return by_time[len(by_time) // 2]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a page.

    Args:
        page: from the root of the repository.
        text: with ``{}`` for each figure; white space matches any, line ends too.
        figures: as they stand in the page.
    """

    page: str
    text: str
    figures: Callable[[Results], Iterable[str]]

    def brought_up(self, page: str, results: Results) -> str:
        """The page with the figures of these results.

        Raises:
            ValueError: the page does not have the sentence, or has it twice.
        """
        pattern = r"\s+".join(re.escape(word) for word in self.text.split())
        found = list(re.finditer(pattern.replace(re.escape("{}"), _NUMBER), page))
        figures = list(self.figures(results))
        if len(found) != 1 or found[0].re.groups != len(figures):
            raise ValueError(
                f"{self.page} has {len(found)} times: {self.text}; {len(figures)} figures"
            )
        (match,) = found
        for number in range(len(figures), 0, -1):
            begin, end = match.span(number)
            page = page[:begin] + figures[number - 1] + page[end:]
        return page


def brought_up(
    pages: Mapping[str, str], results: Results, sentences: Iterable[Sentence]
) -> dict[str, str]:
    """All pages with the figures of these results; raises ValueError, see ``Sentence``."""
    found = dict(pages)
    for each in sentences:
        found[each.page] = each.brought_up(found[each.page], results)
    return found


def row(page: str, begin: str, result: str, speed_of: str, over: str, digits: int = 2) -> Sentence:
    """A row of a table that ends in a ratio, its quartiles and the number of rounds.

    Args:
        begin: of the row, up to the figures; its end is enough.
        digits: of the ratio.
    """

    def figures(results: Results) -> Iterator[str]:
        _, *quartiles = results.spread(result, speed_of, over)
        yield f"{results.median(result, speed_of, over):.{digits}f}"
        yield from quartiles
        yield str(results.ratio(result, speed_of, over)["count"])

    return Sentence(page, f"{begin} | {{}} | {{}} - {{}} | {{}} |", figures)
