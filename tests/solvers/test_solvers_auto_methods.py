"""penalty="auto" from where people ask for it: every method that fits, the explainer, the command line."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

import c2fa
from c2fa.asking.querying import Answer
from c2fa.cli.options import value
from c2fa.methods import METHODS
from c2fa.methods.base import Task, gather

FITTING = [name for name, kind in METHODS.items() if "penalty" in {f.name for f in fields(kind)}]
STRUCTURES = {
    "ragged": c2fa.Structure.from_groups("aaabbbccccd"),
    "scattered": c2fa.Structure.from_groups("abcabcabcc"),
    "one part": c2fa.Structure.from_groups("aaaa"),
    "one leaf": c2fa.Structure.from_groups("a"),
    "three levels": c2fa.Structure.from_tree({"A": {"A1": ["x", "q"], "A2": ["y"]}, "B": {"B1": ["w", "v"]}}),
    "flat": c2fa.Structure.flat(6),
}


def explain(method, structure, model=None, budget=60, penalty="auto", **options):
    weights = np.random.default_rng(0).normal(size=(structure.leaves, 3))
    explainer = c2fa.Explainer(
        model or (lambda batch: np.tanh(batch @ weights + 0.3)),
        c2fa.maskers.Array(structure),
        method=method,
        budget=budget,
        penalty=penalty,
        **options,
    )
    return explainer(np.ones(structure.leaves))


def test_there_are_methods_to_test():
    assert {"c2fa", "lime", "bu-lime"} <= set(FITTING)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("method", FITTING)
def test_every_method_that_fits_takes_it(method, structure):
    s = STRUCTURES[structure]
    e = explain(method, s)
    for values, errors, width in zip(e.values, e.stderr or e.values, s.widths, strict=True):
        assert values.shape == errors.shape == (width,)
        assert np.isfinite(values).all()
        assert np.isfinite(errors).all()
    assert e.queries <= 60
    flat = explain(method, s, model=lambda batch: np.full(len(batch), 0.3))
    np.testing.assert_allclose(flat.high, 0, atol=1e-9)


@pytest.mark.parametrize("method", FITTING)
def test_the_target_alone_gets_what_it_gets_among_all(method):
    s = STRUCTURES["ragged"]
    among, alone = explain(method, s, outputs="all"), explain(method, s, outputs="target")
    for k in (0, 1):
        np.testing.assert_allclose(among.values[k], alone.values[k], atol=1e-9)
        if among.stderr is not None:
            np.testing.assert_allclose(among.stderr[k], alone.stderr[k], rtol=1e-6)


def test_diagnostics_speak_of_the_strengths_that_were_chosen():
    e = explain("c2fa", STRUCTURES["ragged"], budget=120)
    for report in e.diagnostics.levels:
        assert report.r2 > 0.3
        assert report.loss >= report.loss_alone - 1e-9
    assert e.diagnostics.levels[1].r2_left_out < e.diagnostics.levels[1].r2
    assert "auto" in e.provenance["settings"]


@pytest.mark.parametrize("penalty", ["auto", c2fa.Auto(), [c2fa.Auto()] * 2])
def test_ways_to_say_it(penalty):
    s = STRUCTURES["ragged"]
    np.testing.assert_allclose(explain("c2fa", s, penalty=penalty).low, explain("c2fa", s).low)


def test_a_mask_drawn_twice_is_one_answer():
    s = c2fa.Structure.from_groups("aaabbb")
    task = Task(s, (40, 10), np.array([1.0]), np.array([0]), 0, 0)

    def level(penalty):
        asking = gather(
            task,
            0,
            sampler=lambda rng, n, width: rng.random((n, width)) < 0.5,
            kernel=lambda masks: np.full(len(masks), 0.5),
            penalty=penalty,
            intercept=True,
            anchor=True,
        )
        ask = next(asking)
        with pytest.raises(StopIteration) as end:
            asking.send(Answer(np.arange(len(ask.masks), dtype=float)[:, None], np.ones(len(ask.masks), dtype=bool)))
        return end.value.value

    assert level(c2fa.Auto()).weights.tolist() == [0.5] * 4
    assert level(c2fa.L2(0.1)).weights.sum() == 20.0


def test_what_is_no_penalty_is_refused_before_anything_is_asked():
    with pytest.raises(TypeError, match=r"penalty must be L2\(0.1\), 'auto'"):
        explain("c2fa", STRUCTURES["ragged"], penalty="automatic")
    with pytest.raises(ValueError, match=r"level 0 has L2\(lam=0.1"):
        explain("c2fa", STRUCTURES["ragged"], penalty=(c2fa.L2(0.1), c2fa.Auto()))


def test_the_command_line_takes_it():
    assert value("auto") == "auto"
