"""Streams between Roskva's own processes."""
