"""What makes two inputs, or two maskers, the same for the ledger."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import c2fa
from c2fa.asking.fingerprint import fingerprint


def adder(k):
    return lambda x, masks, level: x + k


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": "x", "b": "y"}, {"b": "y", "a": "x"}),
        ([1, 2], [12]),
        (["ab"], ["a", "b"]),
        (1, 1.0),
        ("1", 1),
        (np.zeros(2), np.zeros((2, 1))),
        (np.zeros(2), np.zeros(2, dtype=np.float32)),
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x: [y + 1 for y in x], lambda x: [y + 2 for y in x]),
        (lambda x: x.mean(), lambda x: x.max()),
        (adder(1), adder(2)),
        (c2fa.maskers.Custom(c2fa.Structure.flat(2), adder(1)), c2fa.maskers.Custom(c2fa.Structure.flat(2), adder(2))),
        (c2fa.maskers.Array(c2fa.Structure.flat(2)), c2fa.maskers.Array(c2fa.Structure.from_groups("ab"))),
        (c2fa.maskers.Text(), c2fa.maskers.Text(mask=None)),
    ],
)
def test_different_things_have_different_fingerprints(one, other):
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) == fingerprint(one)


def test_images_with_the_same_numbers_and_other_colours_differ():
    image = pytest.importorskip("PIL.Image")
    red, blue = (image.new("P", (2, 2)) for _ in range(2))
    red.putpalette([255, 0, 0])
    blue.putpalette([0, 0, 255])
    assert fingerprint(red) != fingerprint(blue)


def test_tensors_of_types_that_numpy_lacks_have_fingerprints_too(in_half_precision):
    in_half_precision(
        """
        import torch
        from c2fa.asking.fingerprint import fingerprint

        one = torch.tensor([0.5, 2.0], dtype=torch.bfloat16)
        assert fingerprint(one) == fingerprint(one.clone()) != fingerprint(one + 1)
        """
    )


def test_what_cannot_be_told_apart_is_said():
    with pytest.raises(TypeError, match="pass key="):
        fingerprint(object())


def test_what_a_users_repr_leaves_out_counts_unless_it_is_never_compared():
    @dataclasses.dataclass(frozen=True)
    class Scaled(c2fa.maskers.Text):
        weights: Any = dataclasses.field(default=None, repr=False)
        seen: dict[str, int] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    one, other = Scaled(weights=np.zeros(3)), Scaled(weights=np.ones(3))
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) == fingerprint(Scaled(weights=np.zeros(3), seen={"a": 1}))
    assert fingerprint(Scaled(tokenizer=str.split)) != fingerprint(one)  # by its tokenizer_id, as that of Text
