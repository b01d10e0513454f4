"""The public surface for tests of sinks: contract checks, crash points, simulation."""
