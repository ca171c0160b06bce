"""Label maps: quickshift's are scikit-image's, wherever they are made."""

from __future__ import annotations

import functools
import io
import os
import subprocess
import sys
import tarfile
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from c2fa.maskers import ImageBag, _quickshift, _segmenting
from c2fa.maskers._quickshift import Quickshift
from c2fa.maskers._segmenting import label_maps

scikit_image = pytest.importorskip("skimage.segmentation")

LIME = {"kernel_size": 4, "max_dist": 200, "ratio": 0.2}
VOC = Path(__file__).resolve().parents[3] / "shared" / "data" / "voc2012_seg_256.tar.xz"
RNG = np.random.default_rng(0)
PHOTO = np.kron(RNG.integers(0, 256, (6, 8, 3)), np.ones((7, 5, 1))).astype(np.uint8) // 2 + RNG.integers(
    0, 90, (42, 40, 3), dtype=np.uint8
)


@st.composite
def photos(draw, most=13):
    """Photos of any colours, of few (which makes ties) and of greys."""
    height, width = draw(st.integers(1, most)), draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    colours = draw(st.sampled_from([1, 2, 3, 256]))
    photo = rng.integers(0, colours, (height, width, 3)) * (255 // max(colours - 1, 1))
    return (photo[..., :1] if draw(st.booleans()) else photo).astype(np.uint8) * np.ones(3, dtype=np.uint8)


options = st.fixed_dictionaries(
    {},
    optional={
        "ratio": st.sampled_from([0, 0.2, 0.5, 1.0]),
        "kernel_size": st.sampled_from([1, 1.7, 2, 4]),
        "max_dist": st.sampled_from([0, 1, 2.5, 10, 200]),
    },
)


@given(photos(), options)
@settings(max_examples=150, deadline=None)
def test_numpy_makes_the_segments_of_scikit_image(photo, given_options):
    found = _quickshift.quickshift(photo, Quickshift.of(given_options))
    np.testing.assert_array_equal(found, scikit_image.quickshift(photo, **given_options))


def test_a_photo_longer_than_a_chunk_has_no_seams(monkeypatch):
    monkeypatch.setattr(_quickshift, "_densities", functools.partial(_quickshift._densities, chunk=101))
    np.testing.assert_array_equal(label_maps([PHOTO], "quickshift", LIME)[0], scikit_image.quickshift(PHOTO, **LIME))


@pytest.mark.skipif(not VOC.exists(), reason="needs the photos of VOC")
def test_real_photos_have_the_segments_of_scikit_image():
    image = pytest.importorskip("PIL.Image")
    with tarfile.open(VOC) as archive:
        files = (archive.extractfile(member).read() for member in archive if member.name.endswith(".jpg"))
        real = [np.asarray(image.open(io.BytesIO(data)).convert("RGB"))[:160] for data in islice(files, 6)]
    for photo, labels in zip(real, label_maps(real, "quickshift", LIME), strict=True):
        np.testing.assert_array_equal(labels, scikit_image.quickshift(photo, **LIME))


# -- torch -------------------------------------------------------------------------------------------


def test_what_a_gpu_cannot_do_is_left_to_the_host(monkeypatch):
    gpu = _kernels()
    import torch

    def full(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for runs in (lambda how: False, full):
        monkeypatch.setattr(gpu, "runs", runs)
        [found] = label_maps([PHOTO], "quickshift", LIME)
        np.testing.assert_array_equal(found, scikit_image.quickshift(PHOTO, **LIME))


def test_a_gpu_that_torch_has_is_used_and_torch_is_not_loaded_for_it(monkeypatch):
    gpu = _kernels()
    import torch

    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "runs", lambda how: True)
    monkeypatch.setattr(gpu, "quickshift", lambda images, how: asked.append((len(images), how)))
    label_maps([PHOTO, PHOTO], "quickshift", LIME)
    assert asked == [(2, Quickshift(**LIME))]
    monkeypatch.delitem(sys.modules, "torch")
    label_maps([PHOTO[:5, :5]], "quickshift", LIME)
    assert len(asked) == 1
    assert "torch" not in sys.modules


def test_triton_kernels_make_the_segments_of_scikit_image():
    """On a GPU, or step by step in Triton's interpreter, which must be chosen before Triton is imported."""
    _kernels()
    import torch

    device, side = ("cuda", 40) if torch.cuda.is_available() else ("cpu", 5)
    code = (
        "import contextlib, numpy as np, torch\n"
        "from c2fa.maskers import _triton as gpu, _quickshift\n"
        "from skimage.segmentation import quickshift\n"
        f"device, side = {device!r}, {side}\n"
        "if device == 'cpu':\n"
        "    gpu._stream, torch.cuda.stream = lambda: None, lambda stream: contextlib.nullcontext()\n"
        "    move = torch.Tensor.to\n"
        "    torch.Tensor.to = lambda self, to, *more: move(self, 'cpu' if to == 'cuda' else to, *more)\n"
        "rng = np.random.default_rng(0)\n"
        "any, few = rng.integers(0, 256, (side, side, 3)), 200 * rng.integers(0, 2, (side, side, 3))  # few make ties\n"
        "photos = [any.astype(np.uint8), few.astype(np.uint8)]\n"
        "bag = [photos[0], photos[1][:, :3], photos[1], photos[0][:, 1:4]]  # of two sizes, by turns\n"
        "for options in {'kernel_size': 1, 'max_dist': 9, 'ratio': 0.1}, {'kernel_size': 1.2, 'max_dist': 1.5}:\n"
        "    for pixels in (2**21, side * side):  # all of a size at once, or one by one\n"
        "        found = gpu.quickshift(bag, _quickshift.Quickshift(**options), pixels)\n"
        "        for photo, labels in zip(bag, found, strict=True):\n"
        "            assert labels.dtype == np.intp\n"
        "            np.testing.assert_array_equal(labels, quickshift(photo, **options))\n"
    )
    environment = {**os.environ, "TRITON_INTERPRET": str(int(device == "cpu"))}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def _kernels():
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    from c2fa.maskers import _triton

    return _triton


# -- what is for others ------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [{"sigma": 0.8}, {"convert2lab": False}, {"rng": 1}, {"ratio": np.float32(0.2)}])
def test_what_is_not_supported_goes_to_scikit_image(other):
    assert Quickshift.of({**LIME, **other}) is None
    np.testing.assert_array_equal(
        label_maps([PHOTO], "quickshift", {**LIME, **other})[0], scikit_image.quickshift(PHOTO, **{**LIME, **other})
    )


@pytest.mark.parametrize(
    ("wrong", "said"), [({"kernel_size": 0.5}, "should be >= 1"), ({"return_tree": True}, "give no label map of shape")]
)
def test_what_gives_no_label_map_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        label_maps([PHOTO], "quickshift", wrong)


def test_slic_is_scikit_images_with_labels_from_0():
    [found] = label_maps([PHOTO], "slic", {"n_segments": 6, "start_label": 1})
    np.testing.assert_array_equal(found + 1, scikit_image.slic(PHOTO, n_segments=6, start_label=1))


def test_another_process_may_be_asked(monkeypatch):
    asked = []

    def answer(images, segment, given_options):
        asked.append((segment, given_options))
        return [np.arange(image[..., 0].size).reshape(image.shape[:2]) // 40 for image in images]

    monkeypatch.setattr(_segmenting, "elsewhere", answer)
    assert ImageBag(options={"ratio": 0.5})([PHOTO, PHOTO]).structure.widths == (2, 84)
    assert asked == [("quickshift", {**LIME, "ratio": 0.5})]
    ImageBag("slic")([PHOTO])  # would only keep the other process from its GPU
    assert len(asked) == 1
