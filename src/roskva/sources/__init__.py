"""Change logs of databases: rows change, and nobody calls publish. Read `reader.py` first."""
