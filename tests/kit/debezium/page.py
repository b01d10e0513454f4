"""Makes the tables of the page of what the check found: ``python -m tests.kit.debezium.page``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.kit.debezium.copying import ENCODINGS, EQUAL, LOST, Verdict
from tests.kit.debezium.kinds import KINDS, NAMES, SETTINGS
from tests.kit.debezium.scenarios import INCREMENTAL, SCENARIOS
from tests.kit.debezium.verdicts import ANY, Verdicts, kept

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "debezium.md"
BEGIN, END = "<!-- made by tests/kit/debezium/page.py -->\n", "<!-- until here -->\n"
SHOWN = 3
"""So many lost values are named in a cell."""
OF_GROUP = {"0": "the defaults", "1": "numbers as text"}


def tables(verdicts: Verdicts) -> str:
    """The tables: types by the settings that change how they are sent, then histories of tables."""
    return "\n".join(_tables(verdicts))


def _tables(verdicts: Verdicts) -> Iterator[str]:
    for setting, values in SETTINGS.items():
        kinds = [kind.name for kind in KINDS if kind.setting == setting]
        yield from _table(f"`{NAMES[setting]}`", "type", values, kinds, verdicts)
    kinds = [kind.name for kind in KINDS if not kind.setting]
    yield from _table("Types that no setting changes", "type", (ANY,), kinds, verdicts)
    histories = [case.name for case in SCENARIOS]
    yield from _table("Histories of a table", "history", tuple(OF_GROUP), histories, verdicts)
    yield from _table("", "history", (ANY,), [INCREMENTAL.name], verdicts)


def _table(
    title: str, what: str, values: Sequence[str], names: Iterable[str], verdicts: Verdicts
) -> Iterator[str]:
    rows: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        if name in verdicts:
            cells = tuple(_cell(verdicts[name].get(value, {})) for value in values)
            rows.setdefault(cells, []).append(name)
    if title:
        yield f"### {title}\n"
    heads = ["in every setting" if v == ANY else OF_GROUP.get(v, f"`{v}`") for v in values]
    yield f"| {what} | {' | '.join(heads)} |"
    yield f"| --- |{' --- |' * len(values)}"
    for cells, alike in rows.items():
        yield f"| {', '.join(f'`{name}`' for name in alike)} | {' | '.join(cells)} |"
    yield ""


def _cell(by_encoding: Mapping[str, Verdict]) -> str:
    """One word, if it is the same in every encoding."""
    words = {encoding: _word(verdict) for encoding, verdict in by_encoding.items()}
    if not words:
        return "not recorded"
    if len(set(words.values())) == 1:
        return words[ENCODINGS[0]]
    grouped: dict[str, list[str]] = {}
    for encoding, word in words.items():
        grouped.setdefault(word, []).append(encoding)
    return "; ".join(f"{', '.join(encodings)}: {word}" for word, encodings in grouped.items())


def _word(verdict: Verdict) -> str:
    if verdict.how != LOST:
        return verdict.how
    values = [f"`{_shown(value)}` as `{_shown(sent)}`" for value, sent in verdict.lost[:SHOWN]]
    more = ", ..." if len(verdict.lost) > SHOWN else ""
    return f"{EQUAL}, but Debezium sends {', '.join(values)}{more}"


def _shown(value: str) -> str:
    text = value.replace("\\N", "NULL").replace("|", "\\|").replace("`", "'")
    return text if len(text) <= 32 else f"{text[:29]}..."


def page(text: str, verdicts: Verdicts) -> str:
    """The page with the tables of these verdicts."""
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{tables(verdicts)}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), kept()))
