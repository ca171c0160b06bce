"""Random structures, problems and inputs for hypothesis."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

import c2fa


@st.composite
def structures(draw, depths=(2, 3), most_leaves=14, shuffled=True):
    """A tree with ragged parts, one-leaf parts among them, whose leaves need not lie side by side."""
    depth = draw(st.sampled_from(depths))
    widths = [draw(st.integers(1, 4))]
    parents = []
    for k in range(1, depth):
        top = most_leaves if k == depth - 1 else widths[-1] + 3
        width = draw(st.integers(widths[-1], max(widths[-1], top)))
        extra = [draw(st.integers(0, widths[-1] - 1)) for _ in range(width - widths[-1])]
        owner = list(range(widths[-1])) + extra
        parents.append(np.array(draw(st.permutations(owner)) if shuffled else sorted(owner)))
        widths.append(width)
    names = tuple(tuple(f"{k}.{i}" for i in range(w)) for k, w in enumerate(widths))
    return c2fa.Structure(tuple(parents), names)


@st.composite
def problems(draw, penalties=None, outputs=(None, 1, 3), rows=(1, 25), **kwargs):
    """A problem with random masks, weights, outputs, penalties and intercepts."""
    structure = draw(structures(**kwargs))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    columns = draw(st.sampled_from(outputs))
    intercept = draw(st.booleans())
    levels = []
    for width in structure.widths:
        n = draw(st.integers(*rows))
        shape = (n,) if columns is None else (n, columns)
        penalty = c2fa.L2(draw(st.sampled_from([0.05, 0.3, 2.0]))) if penalties is None else draw(penalties)
        levels.append(
            c2fa.Level(rng.random((n, width)) < 0.5, rng.normal(size=shape), 0.1 + rng.random(n), penalty, intercept)
        )
    return c2fa.Problem(structure, tuple(levels))
