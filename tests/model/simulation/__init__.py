"""Deterministic simulation of the embedded runtime: one seed, one history.

Tasks, channels, alignment rules, coordinator, sources, sinks and the commit protocol are the real ones;
made up are the graph, the schedule, the crashes, and what lies outside: input, target, snapshots.
"""

from tests.model.simulation.history import Outcome, simulate
from tests.model.simulation.leaders import simulate_leaders

__all__ = ["Outcome", "simulate", "simulate_leaders"]
