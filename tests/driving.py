"""A saturating model of two outputs, and a method driven by hand on it."""

from __future__ import annotations

import numpy as np

import c2fa
from c2fa.asking.querying import Answer, step
from c2fa.methods import Task

S = c2fa.Structure.from_groups("aaabbbbccccc")
THREE = c2fa.Structure.from_tree({"A": {"A1": ["x", "q"], "A2": ["y", "z"]}, "B": {"B1": ["w", "v", "u"]}})


def model(batch, structure=S):
    w = np.random.default_rng(7).normal(size=(structure.leaves, 2))
    return np.tanh(batch @ w - 0.2)


def task(structure=S, budget=(14, 60), seed=3, target=0, columns=(0, 1)):
    prediction = model(np.ones((1, structure.leaves)), structure)[0]
    return Task(structure, budget, prediction, np.array(columns), target, seed)


def drive(method, given):
    """Run a method by hand; return what it found and every question it asked."""
    s = given.structure
    conversation, asks = method(given), []
    ask, found = step(conversation, None)
    while ask is not None:
        asks.append(ask)
        outputs = model(s.expand(ask.masks, ask.level) * 1.0, s)
        ask, found = step(conversation, Answer(outputs, np.ones(len(outputs), bool)))
    return found, asks
