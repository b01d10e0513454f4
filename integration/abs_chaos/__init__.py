"""Chaos: runs any job, kills it again and again, and audits what its target holds."""
