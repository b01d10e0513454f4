"""Ratios against peers and limits: ``python -m benchmarks``; see README.md in this folder."""

import os
import sys

# Modules of an installed package are compiled once. Where the environment forbids to keep compiled
# ones, each of Spark's Python processes would compile ours anew, and no peer's.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
