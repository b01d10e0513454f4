"""The one door by which code of ours gets a defect: a planted bug, which a check must find.

    with planted((HandleCommitter, "forget", lambda self, state: None)):
        run_check(opener, check)  # must fail

A test double does not fit through it: the block fails if nothing in it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

Defect = tuple[object, str, object]
"""Owner (a module or a class), the name in it, and what stands there instead."""

Plant = Callable[[object, str, object], None]
"""Puts one defect in its place."""

Bug = Callable[[Plant], None]
"""A bug by name: calls ``Plant`` for each of its defects."""


@contextmanager
def planted(
    *bugs: Bug | Defect,
    by: type[BaseException] | tuple[type[BaseException], ...] = AssertionError,
    match: str | None = None,
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Run a block in which these bugs are there, and in which a check must find them.

    Args:
        by: how the check says it; what else is raised leaves the block.
        match: a pattern that its text must have.

    Raises:
        pytest.fail.Exception: nothing in the block has found the bugs.
    """
    with pytest.MonkeyPatch.context() as patch:

        def plant(owner: object, name: str, defect: object) -> None:
            # An attribute that instances alone have is hidden by one of their class.
            patch.setattr(owner, name, defect, raising=not isinstance(defect, property))

        for bug in bugs:
            if isinstance(bug, tuple):
                plant(*bug)
            else:
                bug(plant)
        with pytest.raises(by, match=match) as error:
            yield error
