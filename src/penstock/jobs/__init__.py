"""A join as a file: what it reads, joins and writes, checked before anything starts, and run on Spark."""
