"""Callables for the models that people have."""
