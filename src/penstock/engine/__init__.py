"""The embedded driver: whole tables, files, comparisons and the demo in one process."""
