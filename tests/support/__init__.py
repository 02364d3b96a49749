"""What several folders of tests use: graphs to start from, a runner of commands, stores, processes."""
