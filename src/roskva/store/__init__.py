"""What a shard knows for good: rows of cells, on disk or in memory."""
