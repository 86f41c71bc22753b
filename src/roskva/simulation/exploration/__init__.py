"""Exhaustive exploration of small clusters, on the code that serves."""

from roskva.simulation.exploration.bounds import Bounds
from roskva.simulation.exploration.search import Exploration, Found, explore

__all__ = ["Bounds", "Exploration", "Found", "explore"]
