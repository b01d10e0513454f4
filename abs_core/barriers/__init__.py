"""Asynchronous Barrier Snapshotting as pure rules, for an engine that sends barriers in its channels.

``elements`` is what flows, ``alignment`` decides what a task does with a barrier (ABS, algorithms 1
and 2, and the strategies that it is compared with), ``checkpoint_rules`` when a checkpoint is complete.
Source: Carbone et al., Lightweight Asynchronous Snapshots for Distributed Dataflows (2015).
"""
