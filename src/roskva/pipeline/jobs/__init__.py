"""Batch jobs over the state of a node and its feed.

Each file is one job: pure functions from DataFrames to DataFrames, and one entry that puts them
together and returns plain values. Who prints them, and how, is the command line's affair.
"""
