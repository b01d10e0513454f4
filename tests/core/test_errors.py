"""The error tree is what its docstring draws, and every error survives the way between processes."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import re
from typing import Any

import pytest

from abs_core import errors
from abs_core.errors import AbsError, ConfigError, RefusedError
from tests.raises import sources

CLASSES = [
    found for _, found in inspect.getmembers(errors, inspect.isclass) if issubclass(found, AbsError)
]


def drawn() -> dict[str, str | None]:
    """Class -> the class above it, as the docstring of the module draws them."""
    parents: dict[str, str | None] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^    ([│├└─ ]*)(\w+Error)\b", line)
        if not found:
            continue
        depth, name = len(found[1]), found[2]
        while above and above[-1][0] >= depth:
            above.pop()
        parents[name] = above[-1][1] if above else None
        above.append((depth, name))
    return parents


def test_the_tree_in_the_docstring_is_the_real_one() -> None:
    real = {
        found.__name__: None if found is AbsError else found.__bases__[0].__name__
        for found in CLASSES
    }
    assert drawn() == real


def test_every_class_says_what_it_means() -> None:
    assert all(found.__doc__ for found in CLASSES)


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_survives_pickling(kind: type[AbsError]) -> None:
    error = kind("It broke.", remedy="mend it.", job="j", epoch=3, handle="h")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert again.__dict__ == error.__dict__
        assert str(again) == str(error)
        assert again.args == error.args


def test_an_error_of_a_job_as_written_cannot_be_made_without_a_remedy() -> None:
    for kind in CLASSES:
        if issubclass(kind, ConfigError):
            remedy = inspect.signature(kind).parameters["remedy"]
            assert remedy.default is inspect.Parameter.empty, kind
            made: Any = kind  # the type checker refuses it, too
            with pytest.raises(TypeError, match="remedy"):
                made("It broke.")


def test_an_error_leaves_out_the_middle_of_a_damaged_text() -> None:
    error = AbsError(f"The register holds {'x' * 10**6} and no more.")
    assert len(str(error)) < 7000
    assert str(error).startswith("The register holds xxx")
    assert str(error).endswith("xxx and no more. [ABS-ERROR]")


def test_an_error_names_what_it_happened_to_and_what_to_do() -> None:
    error = AbsError("It broke.", remedy="mend it.", job="j", epoch=3, handle="h")
    assert str(error) == "It broke. [ABS-ERROR, job j, epoch 3, handle h] What to do: mend it."
    assert str(AbsError("It broke.")) == "It broke. [ABS-ERROR]"


def test_a_retry_can_help_only_where_nothing_is_decided_by_it() -> None:
    retryable = {found.__name__ for found in CLASSES if found.retryable}
    before = {"NotPreparedError", "MiscountError"}
    assert retryable == before | {"UnavailableError", "ContentionError", "NotYetError"}


def test_an_error_says_where_it_happened_also_after_a_journey() -> None:
    error = RefusedError("It refused.", job="j", remedy="ask.")
    error.at("on executor host-3")
    error.at("on executor host-4")  # whoever passes it on does not know better
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert str(one) == "It refused. [ABS-REFUSED, job j, on executor host-3] What to do: ask."


def kept_by_their_frame(source: str) -> list[int]:
    """The lines that raise an error which a variable of the same function holds."""
    lines = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        nodes = [*ast.walk(function)]
        made = {
            target.id
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            for target in node.targets
            if isinstance(target, ast.Name) and ast.unparse(node.value.func).endswith("Error")
        }
        lines += [
            node.lineno
            for node in nodes
            if isinstance(node, ast.Raise) and node.exc is not None
            if made & {name.id for name in ast.walk(node.exc) if isinstance(name, ast.Name)}
        ]
    return lines


def test_no_error_is_kept_by_the_frame_that_raises_it() -> None:
    """Each would keep the other, and the clients of what has failed, until garbage is collected."""
    made = re.compile(r"^ +\w+ = [\w.]*Error\(", re.MULTILINE)
    texts = {path: text for path, text in sources() if made.search(text)}
    assert {
        path: lines for path, text in texts.items() if (lines := kept_by_their_frame(text))
    } == {}


def test_planted_an_error_that_its_frame_keeps_is_found() -> None:
    code = "def f():\n    lost = UnavailableError('x')\n    raise named(lost)"
    assert kept_by_their_frame(code) == [3]
    assert kept_by_their_frame(code.replace("raise", "return")) == []
