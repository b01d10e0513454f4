"""What a start says of a sink's findings."""

from __future__ import annotations

import logging

import pytest

from abs_core.model import Finding, Severity
from abs_core.preflight import check

FINDINGS = [
    Finding(Severity.WARNING, "The folder is warm.", "open a window."),
    Finding(Severity.NOTE, "The folder is blue.", ""),
]


def test_warnings_are_handed_back_for_the_log_and_do_not_say_their_level_themselves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "test")
    warnings = check(FINDINGS, "flights", logging.getLogger("test"))
    assert warnings == ("job flights: The folder is warm. open a window.",)
    assert caplog.messages == ["job flights: The folder is blue."]
