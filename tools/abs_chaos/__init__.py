"""Chaos: runs any job, kills it again and again, and audits what its target holds.

``abs chaos`` is the command, ``abs_chaos.pytest_plugin`` has the fixtures for tests. In a test:

    assert_exactly_once(expected=rows, actual=url, table="payments", key=["id"])
"""

from abs_chaos.check import assert_exactly_once

__all__ = ["assert_exactly_once"]
