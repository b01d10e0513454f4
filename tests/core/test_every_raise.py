"""Every ``raise`` of the coordinator and of the registers is reached by a test that is named here."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("abs_core/coordinator", "abs_core/registers")
CORE = "tests/core"
RULES = "test_coordinator_rules.py::"
COMPOSES = "test_coordinator_composes.py::"
RARE = "test_rare_raises.py::"
CONTRACT = f"{COMPOSES}test_a_composing_sink_keeps_every_rule"

REACHED = {
    "_coordinator.begin 1": CONTRACT,
    "_coordinator.check_begun 1": f"{RARE}test_a_certificate_of_the_engine_that_does_not_match_is_"
    "refused_before_the_epoch",
    "_coordinator._oldest 1": f"{RARE}test_a_loss_is_accepted_of_the_oldest_open_epoch_only",
    "_decider.is_known 1": f"{RULES}test_a_share_that_was_drained_for_an_undecided_epoch_is_an_error",
    "_decider.is_known 2": f"{RULES}test_a_refused_replay_still_rolls_forward_what_is_decided",
    "cell.mine 1": f"{COMPOSES}test_a_superseded_run_that_finds_its_segments_swept_is_told_that_"
    "it_is_fenced",
    "_decider._co_commit 1": f"{RARE}test_rows_that_are_refused_anew_each_time_are_not_decided",
    "_decider._composed 1": f"{COMPOSES}test_rows_that_are_lost_in_composing_are_never_decided",
    "_decider._plan 1": f"{RULES}test_a_zombie_is_told_that_it_is_fenced_and_not_that_its_rows_are_"
    "gone",
    "_decider._plan 2": CONTRACT,
    "cell.once 1": f"{RULES}test_a_zombie_is_told_that_it_is_fenced_and_not_that_its_rows_are_gone",
    "cell.once 2": "test_cell.py::test_who_is_never_first_gives_up_in_time_and_says_so",
    "cell._look 1": f"{RULES}test_a_register_that_vanished_is_an_error",
    "certifier.look_around 1": CONTRACT,
    "certifier.certify 1": f"{RARE}test_a_register_that_goes_back_behind_its_certificate_is_refused_"
    "before_the_decision",
    "certifier.certify 2": CONTRACT,
    "certifier.certify 3": CONTRACT,
    "certifier.note 1": CONTRACT,
    "certifier.write 1": f"{RARE}test_a_batch_that_its_parent_record_cannot_note_is_not_committed",
    "permission.inspect 1": f"{RULES}test_a_handle_with_too_little_time_left_is_not_decided",
    "permission.ask 1": "test_decision_deadline.py::test_planted_bugs_lose_an_epoch",
    "cell.present 1": f"{RARE}test_a_loss_is_not_accepted_where_there_is_no_register",
    "rollforward.accept_loss 1": f"{RARE}test_a_consent_that_names_other_handles_than_are_lost_is_"
    "refused",
    "rollforward.accept_loss 2": f"{RARE}test_a_handle_that_is_prepared_though_it_was_given_up_keeps_"
    "its_decision",
    "rollforward._commit 1": CONTRACT,
    "rollforward._commit 2": f"{RULES}test_a_handle_that_commit_does_not_answer_for_is_lost",
    "rollforward._outcomes 1": f"{RULES}test_a_handle_that_stays_prepared_is_committed_again_not_"
    "called_lost",
    "file._read 1": "test_local_disk.py::test_a_register_of_absurd_size_is_not_read_into_memory",
}
"""By module, function and number in it, the test."""


def raises() -> Iterator[tuple[str, str, range]]:
    """Each ``raise`` of an error: its name in the list, its module, its lines."""
    for path in sorted(p for folder in FOLDERS for p in (ROOT / folder).glob("*.py")):
        counts: dict[str, int] = {}
        for function, node in _inside(ast.parse(path.read_text()), ""):
            counts[function] = counts.get(function, 0) + 1
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            yield f"{path.stem}.{function} {counts[function]}", str(path), lines


def _inside(node: ast.AST, function: str) -> Iterator[tuple[str, ast.Raise]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Raise) and child.exc is not None:
            yield function, child
        named = child.name if isinstance(child, ast.FunctionDef) else function
        yield from _inside(child, named)


def test_the_list_has_every_raise_and_nothing_else() -> None:
    assert sorted(name for name, _, _ in raises()) == sorted(REACHED)


@pytest.mark.campaign
def test_each_is_reached_by_the_test_that_is_named(tmp_path: Path) -> None:
    tests = sorted({f"{CORE}/{test}" for test in REACHED.values()})
    found = tmp_path / "reached.json"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.core.raises_reached", *tests],
        cwd=ROOT,
        env={**os.environ, "REACHED": str(found)},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout
    reached = {(module, line, test) for module, line, test in json.loads(found.read_text())}
    assert missed(REACHED, reached) == []
    planted = {**REACHED, "file._read 1": REACHED["cell._look 1"]}
    assert missed(planted, reached) == ["file._read 1"]


def missed(named: Mapping[str, str], reached: set[tuple[str, int, str]]) -> list[str]:
    """Each ``raise`` that its test has not reached."""
    return [
        name
        for name, module, lines in raises()
        if not any((module, line, f"{CORE}/{named[name]}") in reached for line in lines)
    ]
