"""The version, in a room of its own so that every other room may ask for it."""

__version__ = "0.1.0"
