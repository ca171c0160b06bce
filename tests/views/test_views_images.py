"""Sizes, tints and maps of heat: what is painted is what was masked, at the image's own size."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import showcases
from c2fa.views import View
from c2fa.views import images as pixels

_LENGTHS = st.integers(1, 60)


@given(_LENGTHS, _LENGTHS, st.integers(1, 60))
def test_a_block_goes_back_to_where_it_was(height: int, width: int, side: int) -> None:
    image = np.zeros((height, width, 3), dtype=np.uint8)
    small = pixels.shrink(image, side).shape[:2]
    assert max(small) <= max(side, 1)
    labels = np.arange(small[0] * small[1]).reshape(small)
    full = pixels.enlarge(labels, (height, width))
    assert full.shape == (height, width)
    np.testing.assert_array_equal(np.unique(full), labels.ravel())
    np.testing.assert_array_equal(pixels.pick(full, small), labels)
    columns = pixels.enlarge(np.stack([labels, labels]), (height, width), axes=(1, 2))
    np.testing.assert_array_equal(columns, np.stack([full, full]))


@given(_LENGTHS, _LENGTHS, st.integers(1, 60), st.sampled_from([np.uint8, np.float32]))
def test_a_small_copy_has_the_means_of_its_blocks(height: int, width: int, side: int, dtype: type) -> None:
    image = (np.random.default_rng(height * 61 + width).random((height, width, 2)) * 255).astype(dtype)
    small = pixels.shrink(image, side)
    blocks = pixels.enlarge(np.arange(small.shape[0] * small.shape[1]).reshape(small.shape[:2]), (height, width))
    for block in range(int(blocks.max()) + 1):
        mean = image[blocks == block].astype(float).mean(axis=0)
        assert np.abs(small.reshape(-1, 2)[block] - mean).max() <= (0.5 if dtype is np.uint8 else 1e-3)


def test_a_heat_map_paints_each_super_pixel() -> None:
    e = showcases.explain_images()
    maps = e.heatmap()
    assert [m.shape for m in maps] == [(96, 96)] * 5
    for j, (labels, heat) in enumerate(zip(e.view.labels, maps, strict=True)):
        np.testing.assert_array_equal(heat, e.low[36 * j + labels])
    np.testing.assert_array_equal(e.heatmap(level=0)[2], np.full((96, 96), e.high[2]))
    for level in (0, -1):
        sums = [m.sum() for m in e.heatmap(level, density=True)]
        np.testing.assert_allclose(sums, e.high, atol=1e-12)


def test_regions_of_a_single_image_have_a_heat_map_too() -> None:
    e = showcases.explain_image()
    (heat,) = e.heatmap(level=0)
    np.testing.assert_array_equal(np.unique(heat), np.unique(e.high))
    (dense,) = e.heatmap(level=0, density=True)
    assert dense.sum() == pytest.approx(e.high.sum())


def test_other_kinds_have_no_heat_map() -> None:
    with pytest.raises(ValueError, match=r"heatmap is for images, .* of kind 'table': to_frame\(\) has its values"):
        showcases.explain_table().heatmap()
    with pytest.raises(ValueError, match="kept without its input's view"):
        dataclasses.replace(showcases.explain_image(), view=View()).heatmap()
    with pytest.raises(IndexError):
        showcases.explain_image().heatmap(level=2)


def test_a_full_tint_does_not_hide_what_is_under_it() -> None:
    image = np.broadcast_to(np.arange(256, dtype=np.uint8)[None, :, None], (1, 256, 3))
    plain = pixels.tint(image, np.zeros((1, 256)))
    assert np.ptp(plain, axis=-1).max() == 0
    for share in (-1.0, 1.0):
        tinted = pixels.tint(image, np.full((1, 256), share)).astype(float)
        light = tinted @ (0.299, 0.587, 0.114)
        assert np.ptp(light) > 0.6 * np.ptp(plain), "a black thing and a white one stay apart"
        assert (np.sign(tinted[..., 2] - tinted[..., 0]) == np.sign(share)).all(), "blue for, orange against"
        half = pixels.tint(image, np.full((1, 256), 0.3 * share)).astype(float)
        assert (np.abs(half[..., 2] - half[..., 0]) > 25).all(), "a third of the largest is seen"
