"""Maintenance: optimize, repair, cleanup, verify, on a graph that others write at the same time."""
