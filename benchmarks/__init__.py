"""Ratios against peers and limits: ``python -m benchmarks``; see README.md in this folder."""
