"""Explores every interleaving of a small model of the protocol, with the real rules.

What the register holds are real ``JobState`` values, and every verdict comes from a function of
``abs_core.protocol``. What is modelled is the rest: the steps of ``abs_core.coordinator``, engines
that retry and give up, a target, and requests that arrive late or never.

``configurations`` has what is explored, ``explore`` explores it and prints how a rule was broken.
"""

from tests.model.exhaustive.book import Violated
from tests.model.exhaustive.configuration import Configuration, Rules, RunSpec
from tests.model.exhaustive.explore import Explored, explore

__all__ = ["Configuration", "Explored", "Rules", "RunSpec", "Violated", "explore"]
