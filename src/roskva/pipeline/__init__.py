"""The data pipeline on Spark; the only package that knows it.

Nothing here is imported by a node. `machine.py` says whether Spark can run at all, and is the one
module that may be imported without it.
"""
