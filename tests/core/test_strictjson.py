"""JSON that is read back holds what it says, or is refused with one error."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abs_core.strictjson import (
    LARGEST,
    MAX_LEVELS,
    NewerVersionError,
    decimal,
    fields,
    of,
    parse,
    text,
    version,
    whole,
)
from tests.roots import PRODUCT

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-LARGEST - 1, LARGEST)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.booleans())
def test_what_json_can_say_comes_back(value: object, ascii_only: bool) -> None:
    written = json.dumps(value, ensure_ascii=ascii_only)
    assert parse(written) == value
    assert parse(written.encode()) == value


def nested(levels: int, left: str = "[", right: str = "]") -> str:
    return left * levels + right * levels


@pytest.mark.parametrize("levels", [MAX_LEVELS + 1, 900, 10_000, 1_000_000])
@pytest.mark.parametrize(("left", "right"), [("[", "]"), ('{"a":', "}"), ('[{"a":[', "]}]")])
def test_what_is_nested_too_deep_is_refused(levels: int, left: str, right: str) -> None:
    with pytest.raises(ValueError, match=r"nested|Expecting"):
        parse(nested(levels, left, right))


def test_what_is_nested_as_deep_as_allowed_is_read() -> None:
    assert parse(nested(MAX_LEVELS)) is not None
    with pytest.raises(ValueError, match="nested more than"):
        parse(nested(MAX_LEVELS + 1))


def test_brackets_in_a_text_are_no_levels() -> None:
    assert parse(json.dumps("[" * 5000)) == "[" * 5000


REFUSED = {
    "a number of a thousand digits": "1" * 1000,
    "a number of ten thousand digits": "1" * 10_000,
    "a number over 64 bits": str(2**63),
    "a number under 64 bits": str(-(2**63) - 1),
    "a float too large": "1e999",
    "no number": "NaN",
    "infinity": "-Infinity",
    "an unpaired surrogate": '"\\ud800"',
    "an unpaired surrogate in a name": '{"\\uDFFF": 1}',
    "an unpaired surrogate below": '[{"a": ["\\udc00"]}]',
    "a lone surrogate as it is": '"\ud800"',
    "nothing": "",
    "cut short": '{"a": 1',
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_no_format_has_is_refused(how: str) -> None:
    with pytest.raises(ValueError):
        parse(REFUSED[how])


@pytest.mark.parametrize("content", [b"\xff", b"\xed\xa0\x80", b'"\xff"'])
def test_bytes_that_are_no_utf8_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        parse(content)


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert parse('"\\ud83d\\ude00"') == "\U0001f600"


@pytest.mark.parametrize(
    "read",
    [
        lambda: fields([]),
        lambda: fields({})["absent"],
        lambda: of(int, True),
        lambda: text(None),
        lambda: whole(-1),
        lambda: whole(1.0),
        lambda: whole(11, 0, 10),
        lambda: decimal(1),
        lambda: decimal(""),
        lambda: decimal("1_0"),
        lambda: decimal(" 1"),
        lambda: decimal("\u0661"),
        lambda: decimal("1" * 5000),
        lambda: decimal("-1"),
        lambda: version(0, 1),
        lambda: version("1", 1),
        lambda: version(True, 1),
    ],
)
def test_a_field_that_is_something_else_is_refused(read: Callable[[], object]) -> None:
    with pytest.raises(ValueError):
        read()


def test_a_newer_version_is_refused_by_its_number() -> None:
    assert [version(known, 3) for known in (1, 2, 3)] == [1, 2, 3]
    with pytest.raises(NewerVersionError, match=r"version 4, of a newer release.* reads 1 to 3"):
        version(4, 3)
    with pytest.raises(NewerVersionError, match=r"format 2, of a newer release.* reads 1"):
        version(2, 1, name="format")


CHECKED = {
    "abs_core/strictjson.py": "it is what the others use",
    "abs_audit/nested.py": "users' values: what cannot be read equals nothing but itself",
    "abs_audit/textfiles.py": "users' records: any digits, and a typed error",
    "state/codecs.py": "what a user's state holds, written by the codec itself",
    "state/states.py": "a codec's decode",
    "state/operator_state.py": "base64, or a codec's decode",
    "abs_services/settings.py": "base64",
    "abs_services/databases.py": "what a server of our own says",
    "abs_demo/job.py": "the environment that the demo gives its own child",
    "abs_chaos/job.py": "the arguments that a test gives its own child",
    "abs_chaos/faults.py": "words that a pattern of ASCII has matched; a method of any bytes",
    "abs_services/registry.py": "a stand-in for tests: a body that is no JSON fails its own request",
    "process/program.py": "a line of our own pipe: ValueError is caught around it",
    "abs_spark/change_events.py": "ValueError is caught around it",
    "abs_spark/schema.py": "a schema that our own source has just made",
    "cdc/decode.py": "base64; ValueError is caught around it",
    "cdc/envelope.py": "ValueError is caught around it, UnicodeDecodeError with it",
    "cdc/placeholders.py": "base64",
    "cdc/texts.py": "UnicodeDecodeError is caught around it",
    "iceberg/entries.py": "base64",
    "datasource/readable.py": "offsets that our own source has just made",
    "foreach/views.py": "a schema that Spark has just told",
    "s3/register.py": "the text that the codec has just made",
    "s3/objects.py": "base64",
    "wal/format.py": "the magic that a pattern of ASCII has matched",
    "register/topic.py": "guarded, or made here",
    "files/log.py": "ValueError is caught around it",
    "files/jsontypes.py": "ValueError is caught around it, UnicodeDecodeError with it",
    "kafka/oidc.py": "what is wrong with a server's answer is caught around it; base64",
    "postgres/password.py": "UnicodeDecodeError is caught around it",
    "check/facts.py": "settings that libpq holds as text",
    "deadletters/letter.py": "base64",
    "deadletters/row.py": "what is wrong is caught around it; base64",
    "postgres/address.py": "names that libpq has",
    "avro/schema.py": "what is wrong is caught around it",
    "avro/columns.py": "of Avro, not of text",
    "avro/leaves.py": "UnicodeDecodeError is caught around it",
    "delta/evolve.py": "a schema that deltalake has just written",
    "delta/problems.py": "a schema that deltalake has just written",
    "delta/history.py": "what is wrong with a log is caught around it",
    "delta/log.py": "a log of UTF-8, which deltalake has read before",
    "iceberg/history.py": "what is wrong is caught around it",
    "lake/sink.py": "base64",
    "deadletters/replay.py": "what is wrong is caught around it",
    "kafka/letters.py": "the text that the sink has just made",
}
"""Where text or JSON is read by hand in what is shipped, and why it needs no reader of ours."""


def test_what_is_read_from_elsewhere_is_read_strictly() -> None:
    """A plain ``json.loads`` or ``.decode()`` raises what no caller expects, or lets too much pass."""
    root = Path(__file__).parents[2]
    found = {
        f"{path.parent.name}/{path.name}"
        for folder in PRODUCT
        for path in sorted((root / folder).rglob("*.py"))
        if not {"testing", "abs_testing"} & set(path.parts)
        and any(_careless(ast.parse(path.read_text())))
    }
    assert found == set(CHECKED)


def test_a_careless_reader_would_be_found() -> None:
    for code in ("json.loads(x)", "json.load(x)", "JSON(json.loads)", "x.data.decode()"):
        assert any(_careless(ast.parse(code))), code
    assert not any(_careless(ast.parse("x.decode(errors='replace')")))
    assert not any(_careless(ast.parse("x.decode('ascii', 'replace')")))


def _careless(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.loads", "json.load"):
            yield node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            lax = len(node.args) > 1 or any(k.arg == "errors" for k in node.keywords)
            if node.func.attr == "decode" and not lax:
                yield node
