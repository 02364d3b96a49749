"""Indices: those that a schema declares, their coverage, how segments are built, how row addresses change."""
