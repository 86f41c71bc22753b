"""Roskva: clients learn, reliably and at once, that the data they cache has changed."""

__version__ = "0.1.0.dev0"
