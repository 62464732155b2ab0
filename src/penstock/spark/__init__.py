"""The same join inside Spark: rows packed by shard, one operator a shard, its state in Spark's checkpoint."""
