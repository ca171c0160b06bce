"""What must hold of every masker, whatever it masks."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from c2fa import Structure, maskers
from c2fa.asking.fingerprint import fingerprint
from c2fa.asking.masking import Masked, View
from c2fa.showing import codec
from c2fa.views.descriptors import Descriptors

RNG = np.random.default_rng(7)
TEXT = "  Dr. Lee isn't sad :)  She said: “Go!”\n\n今天很好。👨‍👩‍👧 see https://a.org/b?c=1. \n"
PICTURES = [RNG.integers(0, 256, (12, 16, 3)).astype(np.uint8) for _ in range(3)]
RAGGED = [RNG.random((8, 8)), RNG.integers(0, 256, (3, 10, 12)).astype(np.uint8), RNG.random((6, 9, 1))]
GROUPS = {"person": ["age", "city"], "work": {"kind": ["job"], "money": ["pay"]}}


# Inputs of other packages' types; a case whose package is not installed is skipped.


def tensor(array: Any) -> Any:
    torch = pytest.importorskip("torch")
    return torch.as_tensor(array, dtype=torch.float32)


def pil(array: np.ndarray) -> Any:
    return pytest.importorskip("PIL.Image").fromarray(array)


def frame() -> Any:
    pd = pytest.importorskip("pandas")
    return pd.DataFrame(
        {
            "age": pd.Series([40, 20, 33], dtype="int64"),
            "job": pd.Categorical(["nurse", "cook", "cook"], categories=["cook", "nurse"]),
            "city": pd.Series(["Rome", "Oslo", "Oslo"], dtype="str"),
            "pay": [1.5, 2.5, 4.0],
            "member": [True, False, False],
        }
    )


def superpixels(name: str) -> str:
    pytest.importorskip("skimage")
    return name


def quarters(image: np.ndarray) -> np.ndarray:
    height, width = image.shape[:2]
    rows, columns = np.arange(height)[:, None], np.arange(width)[None]
    return 2 * (2 * rows // height) + 2 * columns // width


def keep(x: list[str], masks: np.ndarray, level: int) -> list[list[str]]:
    return [[w for w, on in zip(x, row, strict=True) if on] for row in THREE.expand(masks, level)]


THREE = Structure.from_groups(["a", "a", "b"])


@dataclass(frozen=True)
class Case:
    """A masker, an input, and how a row of a batch is compared with that input."""

    masker: Any
    x: Any
    same: Callable[[Any, Any], Any] = lambda row, x: row == x


def same_array(row: Any, x: Any) -> bool:
    return np.array_equal(np.asarray(row), np.asarray(x))


def same_bag(row: Any, x: Any) -> bool:
    """Not only equal images but the very objects."""
    return len(row) == len(x) and all(a is b for a, b in zip(row, x, strict=True))


def same_frame(row: Any, x: Any) -> bool:
    pd = pytest.importorskip("pandas")
    pd.testing.assert_frame_equal(row.reset_index(drop=True), x.reset_index(drop=True))
    return True


CASES = {
    "array": lambda: Case(maskers.Array(THREE), [1.0, 2.0, 3.0], same_array),
    "custom": lambda: Case(maskers.Custom(THREE, keep), ["x", "y", "z"]),
    "text": lambda: Case(maskers.Text(), TEXT),
    "text-three-levels": lambda: Case(maskers.Text(("paragraphs", "sentences", "words")), TEXT),
    "text-removed": lambda: Case(maskers.Text(("paragraphs", "words"), mask=None), TEXT),
    "text-words": lambda: Case(maskers.Text("words", mask="..."), TEXT),
    "text-split": lambda: Case(maskers.Text(tokenizer=lambda t: [(i, i + 3) for i in range(0, len(t), 3)]), TEXT),
    "text-pair": lambda: Case(maskers.Text(("texts", "words")), ("A man eats.", "Nobody\teats.")),
    "text-fields": lambda: Case(maskers.Text(mask=None), {"title": " Good. Bad.", "body": "One two three. "}),
    "images-removed": lambda: Case(maskers.ImageBag(quarters), PICTURES, same_bag),
    "images-filled": lambda: Case(maskers.ImageBag(quarters, absent="fill", fill="mean"), PICTURES, same_array),
    "images-ragged": lambda: Case(maskers.ImageBag(quarters, absent="fill", fill="blur"), RAGGED, same_bag),
    "images-pil": lambda: Case(
        maskers.ImageBag(quarters, absent="fill", fill="segments"), list(map(pil, PICTURES)), same_bag
    ),
    "images-tensor": lambda: Case(
        maskers.ImageBag(quarters, absent="fill"), tensor(np.arange(384).reshape(2, 3, 8, 8) / 100), same_array
    ),
    "images-single": lambda: Case(
        maskers.ImageBag(superpixels("slic"), fill=(1, 2, 3), regions=2), PICTURES[0], same_array
    ),
    "images-single-tensor": lambda: Case(
        maskers.ImageBag(quarters, regions=2), tensor(np.arange(192).reshape(3, 8, 8) / 100), same_array
    ),
    "images-single-pil": lambda: Case(
        maskers.ImageBag(quarters, regions=quarters), pil(PICTURES[0]), lambda row, x: row is x
    ),
    "images-quickshift": lambda: Case(
        maskers.ImageBag(superpixels("quickshift")), [PICTURES[0], PICTURES[1]], same_bag
    ),
    "table-frame": lambda: Case(
        maskers.Tabular(GROUPS, frame()), frame().iloc[[0]], lambda row, x: same_frame(row.to_frame(), x)
    ),
    "table-vector": lambda: Case(
        maskers.Tabular({"a": [0, 2]}, RNG.random((5, 3))), np.array([1.0, 2.0, 3.0]), same_array
    ),
    "table-dict": lambda: Case(maskers.Tabular(GROUPS, frame().to_dict("records")), frame().to_dict("records")[1]),
    "table-flat": lambda: Case(maskers.Tabular(background=[0, 1], strategy="row"), np.array([5, 6]), same_array),
    "table-average": lambda: Case(
        maskers.Tabular({"a": [0, 1]}, RNG.random((4, 3)), strategy="average"),
        np.array([1.0, 2.0, 3.0]),
        same_array,
    ),
    "series": lambda: Case(maskers.TimeSeries(windows=3), RNG.random((20, 2)), same_array),
    "series-line": lambda: Case(maskers.TimeSeries([3, 9], fill="linear"), RNG.random(12), same_array),
    "series-cuts": lambda: Case(
        maskers.TimeSeries([3], order="windows", fill="zero"),
        tensor([[0.0] * 10 + [9.0] * 10, [1.0] * 20]),
        same_array,
    ),
    "bag": lambda: Case(maskers.Bag(), RNG.random((4, 3)), same_array),
    "bag-filled": lambda: Case(
        maskers.Bag(absent="fill", fill="mean"),
        tensor(np.arange(6).reshape(3, 2)),
        same_array,
    ),
}


class Prepared:
    """A case with its masked input, made once."""

    def __init__(self, case: Case) -> None:
        self.case, self.masked = case, case.masker(case.x)


@cache
def prepared(name: str) -> Prepared:
    return Prepared(CASES[name]())


@pytest.fixture(params=list(CASES))
def made(request: pytest.FixtureRequest) -> Prepared:
    return prepared(request.param)


def row_of(batch: Any, i: int) -> Any:
    return batch.iloc[i] if hasattr(batch, "iloc") else batch[i]


def equal(a: Any, b: Any) -> bool:
    """Compare two rows of any type."""
    if hasattr(a, "equals"):
        return bool(a.equals(b))
    if isinstance(a, list) and a and not isinstance(a[0], str):
        return len(a) == len(b) and all(equal(*pair) for pair in zip(a, b, strict=True))
    if hasattr(a, "__array__") or hasattr(a, "__array_interface__"):
        return same_array(a, b)
    return bool(a == b)


def some_masks(made: Prepared, level: int, n: int = 9) -> np.ndarray:
    masks = np.random.default_rng(level).random((n, made.masked.structure.widths[level])) < 0.5
    masks[~masks.any(axis=1), 0] = True
    return masks


def test_makes_a_masked_input(made: Prepared) -> None:
    assert isinstance(made.masked, Masked)
    assert made.masked.structure.depth >= 1


def test_its_view_fits_and_comes_back_from_a_file(made: Prepared) -> None:
    view = made.masked.view
    assert isinstance(view, View)
    view.check(made.masked.structure)
    back = codec.read(View, codec.decode(json.loads(codec.dumps(codec.encode(view)))))
    assert type(back) is type(view)
    assert codec.encode(back) == codec.encode(view)
    assert back.level_names(made.masked.structure) == view.level_names(made.masked.structure)
    assert back.cells() == view.cells()


def test_full_mask_gives_back_the_input(made: Prepared) -> None:
    for level, width in enumerate(made.masked.structure.widths):
        batch = made.masked.inputs(np.ones((2, width), dtype=bool), level)
        assert len(batch) == 2 * made.masked.rows_per_mask
        for i in range(len(batch)):
            row = batch.iloc[[i]] if hasattr(batch, "iloc") else batch[i]
            if hasattr(batch, "iloc"):
                same_frame(row, made.case.x)
            else:
                assert made.case.same(row, made.case.x)


def test_as_many_rows_for_each_mask_as_are_promised(made: Prepared) -> None:
    for level in range(made.masked.structure.depth):
        for n in (1, 5):
            assert len(made.masked.inputs(some_masks(made, level, n), level)) == n * made.masked.rows_per_mask


def test_a_row_does_not_depend_on_its_batch(made: Prepared) -> None:
    for level in range(made.masked.structure.depth):
        masks = some_masks(made, level)
        batch = made.masked.inputs(masks, level)
        for i in (0, 4):
            at = i * made.masked.rows_per_mask
            assert equal(row_of(batch, at), row_of(made.masked.inputs(masks[i : i + 1], level), 0))


def test_wrong_width_is_refused(made: Prepared) -> None:
    if isinstance(made.case.masker, maskers.Custom):
        pytest.skip("the function is the user's")
    for level, width in enumerate(made.masked.structure.widths):
        with pytest.raises(ValueError, match=rf"masks of level {level} must have shape \(n, {width}\)"):
            made.masked.inputs(np.ones((2, width + 1), dtype=bool), level)


def test_masking_a_part_is_masking_its_leaves(made: Prepared) -> None:
    last = made.masked.structure.depth - 1
    for level in range(last):
        masks = some_masks(made, level)
        masks[-1] = not made.masked.allows_empty
        coarse = made.masked.inputs(masks, level)
        fine = made.masked.inputs(made.masked.structure.expand(masks, level), last)
        assert len(coarse) == len(fine)
        assert all(equal(row_of(coarse, i), row_of(fine, i)) for i in range(len(coarse)))


def test_the_papers_masks_are_of_the_same_input(made: Prepared) -> None:
    if made.masked.apart is None:
        pytest.skip("the paper's masks are no others")
    apart = made.masked.apart()
    assert apart.by_level
    assert apart.apart is None
    assert apart.structure is made.masked.structure
    for level, width in enumerate(apart.structure.widths):
        row = row_of(apart.inputs(np.ones((1, width), dtype=bool), level), 0)
        assert made.case.same(row, made.case.x)


def test_masking_changes_the_input(made: Prepared) -> None:
    for level, width in enumerate(made.masked.structure.widths):
        if made.masked.allows_empty:
            batch = made.masked.inputs(np.zeros((1, width), dtype=bool), level)
            assert len(batch) == made.masked.rows_per_mask
            row, full = (row_of(made.masked.inputs(np.full((1, width), on), level), 0) for on in (False, True))
            assert not equal(row, full)


def test_negative_levels_and_integer_masks(made: Prepared) -> None:
    if isinstance(made.case.masker, maskers.Custom):
        pytest.skip("the function is the user's")
    masks = some_masks(made, made.masked.structure.depth - 1)
    ours, theirs = (
        made.masked.inputs(masks.astype(int), -1),
        made.masked.inputs(masks, made.masked.structure.depth - 1),
    )
    assert all(equal(row_of(ours, i), row_of(theirs, i)) for i in range(len(masks)))


def test_names(made: Prepared) -> None:
    for names, width in zip(made.masked.structure.names, made.masked.structure.widths, strict=True):
        assert len(names) == width
        assert all(isinstance(name, str) and name.strip() for name in names)


def test_fingerprints(made: Prepared) -> None:
    masker, x = made.case.masker, made.case.x
    assert fingerprint(x) == fingerprint(x)
    if not isinstance(masker, maskers.Array | maskers.Custom):  # these hold a structure, not plain values
        assert fingerprint(masker) == fingerprint(dataclasses.replace(masker))


def test_two_calls_give_the_same(made: Prepared) -> None:
    again = made.case.masker(made.case.x)
    assert again.structure.names == made.masked.structure.names
    masks = some_masks(made, made.masked.structure.depth - 1)
    a, b = (m.inputs(masks, m.structure.depth - 1) for m in (made.masked, again))
    assert all(equal(row_of(a, i), row_of(b, i)) for i in range(len(masks)))


def test_what_is_known_of_leaves_fits_them_and_is_the_same_each_time(made: Prepared) -> None:
    table = Descriptors.of(made.masked)
    if table is None:
        pytest.skip("the masker knows nothing of its leaves")
    assert any(entry is not None for column in table.values() for entry in column)
    assert all(len(column) == made.masked.structure.leaves for column in table.values())
    assert dict(table) == dict(Descriptors.of(made.case.masker(made.case.x)) or {})


def test_importing_the_maskers_loads_no_heavy_library() -> None:
    heavy = {"torch", "pandas", "PIL", "skimage", "sklearn", "sentencex", "transformers", "tokenizers"}
    script = f"import sys, c2fa.maskers; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
