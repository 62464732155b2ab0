"""Drive the core in one process: take batches, put results together, compare policies."""
