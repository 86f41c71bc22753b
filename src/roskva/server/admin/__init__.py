"""What can be seen of a node from inside, for the admin API: `queries.py` puts it together."""
