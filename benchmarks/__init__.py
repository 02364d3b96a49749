"""Claims of speed, each measured as a ratio in one run against a peer or a limit. Run all with `make bench`."""
