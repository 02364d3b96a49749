"""The three-way merge of accepted schemas."""
