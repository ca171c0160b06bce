"""Attributions that add up, at every level of a nested input."""

__version__ = "0.1.0"
