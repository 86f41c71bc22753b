"""A running node: its data directory, and what it serves."""
