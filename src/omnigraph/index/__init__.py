"""Indices: which a schema declares, what they cover, how their segments are built, how row addresses move."""
