"""Roskva beside what people would use instead: Mosquitto, NATS and Redis, each in its two ways.

Every module here is a benchmark of its own. `peers.py` says who is compared and how its clients
behave, `config/` what each server is told and why, and `turns.py` how it is measured.
"""
