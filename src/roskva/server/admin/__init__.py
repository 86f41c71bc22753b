"""What can be seen of a node from inside, for the admin API: `gathering.py` puts it together."""
