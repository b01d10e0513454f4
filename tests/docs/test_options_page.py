"""The page of options is what the code has."""

from __future__ import annotations

import random
import runpy
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from abs_clients.options import Option
from abs_core.errors import OptionError
from abs_sinks.options import DeadLetterOptions
from abs_sinks.postgres.options import PostgresOptions

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_options_is_written_from_the_code_as_it_is() -> None:
    made = runpy.run_path(str(DOCS / "make_options.py"))
    found = (DOCS / "reference" / "options.md").read_text()
    assert found == made["written"](), "run: python docs/make_options.py"


def test_an_option_without_a_text_is_an_error() -> None:
    made = runpy.run_path(str(DOCS / "make_options.py"))
    silent = Option("label", str)
    with pytest.raises(ValueError, match=r"All sinks: .*label"):
        made["written"]((("All sinks", "", [silent]),))


def test_the_docstring_of_the_options_has_their_texts() -> None:
    doc = str(PostgresOptions.__doc__)
    assert "\n        address: the server and database" in doc
    assert "\n        locktimeout: how long to wait for a lock.\n" in doc
    assert "see dead letters." in " ".join(doc.split())
    assert "](" not in doc
    assert "deadlettermax" not in doc
    assert "deadlettermax: " in str(DeadLetterOptions.__doc__)


_FREE = """
adopt applyasdeletes catalog checkpointLocation committedat dbtable deadletter deadlettercolumns
epoch exceptcolumns filename job key log nullValue orderby partitionby password passwordcommand
passwordfile passwordfunction path pathGlobFilter queryName region registertopic
registry.basic.auth.user.info
registry.bearer.auth.client.id registry.bearer.auth.client.secret
registry.bearer.auth.identity.pool.id registry.bearer.auth.issuer.endpoint.url
registry.bearer.auth.logical.cluster registry.bearer.auth.scope registry.bearer.auth.token
registry.proxy registry.ssl.ca.location registry.ssl.certificate.location registry.ssl.key.location
registry.ssl.key.password sequenceby ssekmskeyid stateschema subscribe subscribePattern topic
unchanged url user wal
"""
# Names of things that exist elsewhere, and text of the user's own.
FREE = frozenset(_FREE.split())
"""Options that take any word. A new one must be added here, or refuse what it does not know."""


def taking_any_word(sections: Any) -> set[str]:
    """Options that take words made at random: they have no fixed set of values."""
    draw = random.Random(58)
    words = [
        "".join(draw.choices(string.ascii_lowercase, k=draw.randint(5, 12))) for _ in range(20)
    ]
    return {
        option.name
        for _, _, options in sections
        for option in options
        if any(takes(option, word) for word in words)
    }


def takes(option: Option, word: str) -> bool:
    try:
        option.read(word)
    except (ValueError, OptionError):
        return False
    return True


def test_an_option_with_a_fixed_set_of_values_takes_no_other_word() -> None:
    made = runpy.run_path(str(DOCS / "make_options.py"))
    assert taking_any_word(made["SECTIONS"]) == FREE


def planted(option: Option) -> Sequence[Any]:
    return [("", "", [option])]


def test_an_option_that_takes_words_it_does_not_know_is_found() -> None:
    # The planted bug: its values are on the page, and its reader takes any text.
    assert taking_any_word(planted(Option("schemachange", str))) == {"schemachange"}
