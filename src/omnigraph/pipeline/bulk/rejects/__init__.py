"""Rows that a bulk load refuses: codes of violations, their messages, which rows remain, the quarantine."""
