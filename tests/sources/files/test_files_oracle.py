"""Each file is read as Spark's own reader reads it, or refused by name; the differences are listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json
import pytest

from abs_clients import arrow
from abs_sources.files import formats, jsontypes, lines, schema
from abs_sources.files.columnar import Rest, Step
from tests import sample
from tests.planted import planted
from tests.sources.files.fill import TEXT
from tests.sources.files.oracle import BROKEN, REFUSED, Answer, Group, ask, frozen, ours
from tests.sources.files.oracle_cases import every

pytestmark = pytest.mark.long

PAGE = Path(__file__).parents[3] / "docs/reference/files-source.md"
FORMS = ("csv", "json", "text", "parquet")
Answers = Mapping[str, Mapping[str, Answer]]


def _replaced(value: Any, old: Callable[[Any], bool], new: Any) -> Any:
    if isinstance(value, list):
        return [_replaced(item, old, new) for item in value]
    return new if old(value) else value


def _quoted(one: Group, mine: Answer, spark: Answer) -> bool:
    text = one.options.get("nullValue", "")
    null = ("", text, text.encode().hex())
    return one.form == "csv" and _replaced(mine, lambda v: v in null, None) == _replaced(
        spark, lambda v: v in null, None
    )


def _blank(one: Group, mine: Answer, spark: Answer) -> bool:
    """Also tabs that separate nothing are blanks."""
    there = [row for row in mine if any(value and str(value).strip() for value in row)]
    return one.form == "csv" and spark != REFUSED and _quoted(one, there, spark)


def _return(one: Group, mine: Answer, spark: Answer) -> bool:
    return one.form == "csv" and any("\r" in str(value) for row in mine for value in row)


def _zero(one: Group, mine: Answer, spark: Answer) -> bool:
    zeros = ("-0.0", "0.0")
    return one.form == "json" and _replaced(mine, lambda v: v in zeros, 0) == _replaced(
        spark, lambda v: v in zeros, 0
    )


def _spelled(one: Group, mine: Answer, spark: Answer) -> bool:
    return one.form == "csv" and spark == REFUSED and mine[0][-1] in ("nan", "inf", "-inf")


def _width(one: Group, mine: Answer, spark: Answer) -> bool:
    return one.form == "parquet" and spark == REFUSED and one.schema is not None


def _refused(one: Group, mine: Answer, spark: Answer) -> bool:
    return one.form == "parquet" and spark == REFUSED and one.schema is None


def _unsigned(one: Group, mine: Answer, spark: Answer) -> bool:
    sign = _replaced(mine, lambda v: v == "4294967295.0", "-1.0")
    return one.form == "parquet" and bool(sign == spark)


def _null(one: Group, mine: Answer, spark: Answer) -> bool:
    own = one.form == "parquet" and one.schema is None and spark != REFUSED
    return own and mine == [spark[0].replace("int", "string"), spark[1]]


DIFFERENCES: dict[str, Callable[[Group, Answer, Answer], bool]] = {
    "A CSV value in quotes is never NULL": _quoted,
    "A CSV line of blanks": _blank,
    "`\\r` within quotes in CSV": _return,
    "`nan`, `inf` and `-inf` in CSV": _spelled,
    "`-0` in JSON": _zero,
    "Types of another width in Parquet": _width,
    "Parquet that Spark does not read": _refused,
    "Unsigned integers of 32 bits as DOUBLE": _unsigned,
    "A Parquet column of nothing but NULL": _null,
}
"""By the name that the page gives them; each says whether it explains a difference."""


def differences(groups: list[Group], answers: Answers, **how: Any) -> Iterator[tuple[str, Any]]:
    """Of each file: ``equal``, ``refused``, the name of a difference, or ``wrong`` with the case."""
    for one in groups:
        for label, mine, error in ours(one, **how):
            spark = answers[one.label][label]
            if mine == REFUSED:
                # A file's name is f and a number here, in a folder of its own.
                yield ("refused", None) if "/f" in error else ("unnamed", (one.label, label, error))
            elif mine == BROKEN:
                yield "wrong", (one.label, label, error)
            elif mine == spark:
                yield "equal", None
            else:
                why = [name for name, explains in DIFFERENCES.items() if explains(one, mine, spark)]
                yield (why[0], None) if why else ("wrong", (one.label, label, mine, spark))


@pytest.fixture(scope="module")
def answers() -> Answers:
    return frozen()


@cache
def groups_of(form: str) -> list[Group]:
    return [one for one in every(0) if one.form == form]


@pytest.fixture(scope="module")
def found(answers: Answers) -> dict[str, list[tuple[str, Any]]]:
    """What the comparison finds in the files of each form."""
    return {form: list(differences(groups_of(form), answers)) for form in FORMS}


def wrong(found: Iterable[tuple[str, Any]]) -> Iterator[Any]:
    return (case for kind, case in found if kind in ("wrong", "unnamed"))


def test_at_least_2000_files_are_held_against_spark_s_answers(answers: Answers) -> None:
    assert sum(map(len, answers.values())) > 2000


@pytest.mark.parametrize("form", FORMS)
def test_a_file_is_read_as_spark_reads_it_or_refused(
    form: str, answers: Answers, found: dict[str, list[tuple[str, Any]]]
) -> None:
    assert list(wrong(found[form])) == []
    readable = [a for one in groups_of(form) for a in answers[one.label].values() if a != REFUSED]
    # What is refused for no need is not counted as right: most of what Spark reads is read.
    assert Counter(kind for kind, _ in found[form])["equal"] > 0.55 * len(readable)


@pytest.mark.parametrize("form", ["csv", "json", "text"])
def test_a_file_that_is_cut_is_read_the_same(form: str) -> None:
    some = groups_of(form)[::3]
    for one in some:
        whole = [(label, mine) for label, mine, _ in ours(one)]
        assert [(label, mine) for label, mine, _ in ours(one, piece=9, chunk=4)] == whole


def test_every_difference_is_in_the_page_and_occurs(
    found: dict[str, list[tuple[str, Any]]],
) -> None:
    page = PAGE.read_text()
    assert [name for name in DIFFERENCES if name not in page] == []
    assert set(DIFFERENCES) <= {kind for of_form in found.values() for kind, _ in of_form}


def _lenient(array: pa.Array, to: pa.DataType, path: str = "", leaf: Any = None) -> pa.Array:
    return array.cast(to)


def _eaten(form: lines.CsvForm, content: bytes, name: str) -> bytes:
    return content.replace(form.escape.encode(), b"") if form.escape == "\\" else content


def _no_rows(content: Any, *how: Any) -> tuple[list[str], int]:
    names, end = HEADER(content, *how)
    content.seek(0)
    blank = not content.read(1).strip()
    content.seek(0)
    return ([], end) if blank else (names, end)


HEADER = lines._header


def _exactly(wanted: str, names: list[str]) -> list[int]:
    return [place for place, name in enumerate(names) if name == wanted]


def _rounded(array: pa.Array, to: pa.DataType, path: str) -> pa.Array:
    return array.cast(to, safe=False)


def _unchecked(objects: list[bytes], kind: pa.Schema) -> pa.RecordBatch:
    if not all(line[:1] == b"{" and line[-1:] == b"}" for line in objects):
        raise pa.ArrowInvalid("Arrow would die of it")
    content = b"\n".join(objects)
    parsing = pyarrow.json.ParseOptions(explicit_schema=kind, unexpected_field_behavior="ignore")
    table = pyarrow.json.read_json(pa.BufferReader(content), parse_options=parsing)
    [batch] = table.combine_chunks().to_batches()
    return batch


def _by_newlines(rest: Rest) -> Iterator[Step]:
    whole = rest.content.read().decode().removesuffix("\n").split("\n")
    yield pa.RecordBatch.from_pydict({"value": [t.removesuffix("\r") for t in whole]}, TEXT), 0


_required = schema._require


def _any_form(array: pa.Array, pattern: str, path: str, shown: str) -> None:
    if shown == "Base64":  # which Python decodes, not Arrow
        _required(array, pattern, path, shown)


BUGS: dict[str, tuple[str, Any, str, Any]] = {
    "Arrow's own casts": ("parquet", schema, "cast_plain", _lenient),
    "exact names within structs": ("parquet", arrow, "_near", _exactly),
    "values are rounded and cut": ("parquet", arrow, "cast_leaf", _rounded),
    "a blank line before a header loses the rows": ("csv", lines, "_header", _no_rows),
    "the escape is eaten": ("csv", lines.CsvForm, "plain", _eaten),
    "quotes of another dialect move": (
        "csv",
        lines.CsvForm,
        "plain",
        lambda form, text, name: text,
    ),
    "Arrow's conversions of text": ("csv", schema, "_require", lambda *given: None),
    "JSON times without an offset": ("json", schema, "_require", _any_form),
    "several objects in a line": ("json", jsontypes, "_by_arrow", _unchecked),
    "a return does not end a line": (
        "text",
        formats,
        "_READ",
        {**formats._READ, "text": _by_newlines},
    ),
}


SHOWN_BY = {
    "Arrow's own casts": 17,
    "values are rounded and cut": 7,
    "a blank line before a header loses the rows": 26,
    "the escape is eaten": 26,
    "quotes of another dialect move": 26,
    "JSON times without an offset": 44,
    "several objects in a line": 16,
}
"""The number of a group that shows it; the search begins with it, and goes on if it does so no more."""


@pytest.mark.parametrize("bug", BUGS)
def test_the_comparison_finds_a_planted_bug(bug: str, answers: Answers) -> None:
    form, place, name, instead = BUGS[bug]
    groups, first = groups_of(form), SHOWN_BY.get(bug, 0)
    with planted((place, name, instead)):
        is_shown = any(wrong(differences([*groups[first:], *groups[:first]], answers)))
        assert not is_shown, "a file is read in another way"


@pytest.mark.campaign
@pytest.mark.spark
def test_new_files_are_read_as_spark_reads_them_or_refused() -> None:
    groups = every(sample.seed())
    assert list(wrong(differences(groups, ask(groups)))) == []
