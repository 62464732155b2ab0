"""Turn the outside world into batches and back: Arrow, files, and the papers' synthetic workloads."""
