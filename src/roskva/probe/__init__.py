"""The prober: real clients over each channel that measure what users would see."""
