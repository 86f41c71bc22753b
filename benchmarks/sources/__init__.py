"""Databases that publish by themselves, beside Debezium's engine.

Every module with `run` is a benchmark of its own. `databases.py` has the servers that are read and
what is changed there, `ours.py` a node with our reader, `peer.py` Debezium's engine in a program
that does nothing but count (`debezium/`).
"""
