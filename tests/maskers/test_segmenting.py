"""Label maps: quickshift's are scikit-image's, wherever they are made, and those that are kept come back."""

from __future__ import annotations

import functools
import io
import os
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
from c2fa.asking.fingerprint import fingerprint
from c2fa.maskers import ImageBag, _segmenting
from c2fa.maskers._segmenting import Quickshift, cached_label_maps, label_maps

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
        "sigma": st.sampled_from([0, 0.8]),
        "convert2lab": st.booleans(),
        "rng": st.integers(0, 3),
    },
)


@given(photos(), options)
@settings(max_examples=150, deadline=None)
def test_numpy_makes_the_segments_of_scikit_image(photo, given_options):
    found = _segmenting.quickshift(photo, Quickshift.of(given_options))
    np.testing.assert_array_equal(found, scikit_image.quickshift(photo, **given_options))


def test_a_photo_longer_than_a_chunk_has_no_seams(monkeypatch):
    monkeypatch.setattr(_segmenting, "_densities", functools.partial(_segmenting._densities, chunk=101))
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
        "from c2fa.maskers import _triton as gpu, _segmenting\n"
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
        "        found = gpu.quickshift(bag, _segmenting.Quickshift(**options), pixels)\n"
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


@pytest.mark.parametrize("other", [{"channel_axis": 2}, {"ratio": np.float32(0.2)}])
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


# -- what is kept ------------------------------------------------------------------------------------


def test_label_maps_that_are_kept_come_back_and_are_not_made_again(tmp_path, monkeypatch):
    bag, folder = [PHOTO, PHOTO[:20]], tmp_path / "a" / "folder"
    made = cached_label_maps(folder, bag, "quickshift", LIME)
    assert len(list(folder.iterdir())) == 2
    monkeypatch.setattr(_segmenting, "elsewhere", lambda *_: pytest.fail("they were kept"))
    again = cached_label_maps(folder, bag[::-1], "quickshift", dict(reversed(LIME.items())))[::-1]
    for first, second in zip(made, again, strict=True):
        np.testing.assert_array_equal(first, second)
        assert first.dtype == second.dtype


def test_other_pixels_options_and_names_are_other_label_maps(tmp_path):
    for photo, segment, given_options in (
        (PHOTO, "quickshift", LIME),
        (PHOTO ^ 1, "quickshift", LIME),
        (PHOTO, "quickshift", {**LIME, "rng": 1}),
        (PHOTO, "slic", {"n_segments": 4}),
    ):
        before = len(list(tmp_path.iterdir()))
        cached_label_maps(tmp_path, [photo], segment, given_options)
        assert len(list(tmp_path.iterdir())) == before + 1


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _flipped(data: bytes) -> bytes:
    at = len(data) // 3
    return data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]


def _of_another_photo(_: bytes) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, labels=np.zeros((3, 3), dtype=np.uint8))
    return file.getvalue()


@pytest.mark.parametrize("damage", [_cut, _flipped, _of_another_photo, lambda _: b"", lambda _: b"text"])
def test_a_damaged_file_is_made_again(tmp_path, damage):
    [made] = cached_label_maps(tmp_path, [PHOTO], "quickshift", LIME)
    [file] = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    np.testing.assert_array_equal(cached_label_maps(tmp_path, [PHOTO], "quickshift", LIME)[0], made)
    with np.load(file) as archive:
        np.testing.assert_array_equal(archive["labels"], made)


def test_a_folder_that_cannot_be_written_is_said_once_and_the_work_goes_on(tmp_path):
    taken = tmp_path / "file"
    taken.write_text("not a folder")
    with pytest.warns(UserWarning, match=r"label maps cannot be kept in .*file, so they are made each time") as said:
        first = cached_label_maps(taken, [PHOTO, PHOTO[:9]], "quickshift", LIME)
    assert len(said) == 1
    again = cached_label_maps(taken, [PHOTO, PHOTO[:9]], "quickshift", LIME)  # a second warning would be an error
    for photo, *found in zip([PHOTO, PHOTO[:9]], first, again, strict=True):
        np.testing.assert_array_equal(found, [scikit_image.quickshift(photo, **LIME)] * 2)


def test_processes_share_a_folder(tmp_path):
    code = (
        "import sys, numpy as np; from c2fa.maskers._segmenting import cached_label_maps\n"
        "photos = np.random.default_rng(1).integers(0, 256, (20, 9, 9, 3), dtype=np.uint8)\n"
        "for _ in range(3): maps = cached_label_maps(sys.argv[1], photos, 'quickshift', {'kernel_size': 1})\n"
        "print(np.stack(maps).tobytes().hex())"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(tmp_path)]
    with ThreadPoolExecutor() as pool:
        told = list(pool.map(lambda _: subprocess.run(command, capture_output=True, text=True), range(2)))
    assert [one.stderr for one in told] == ["", ""]
    assert told[0].stdout == told[1].stdout != ""
    assert len(list(tmp_path.iterdir())) == 20


def test_a_masker_that_keeps_label_maps_is_the_same_masker(tmp_path):
    plain, keeping = ImageBag(), ImageBag(cache=tmp_path)
    assert fingerprint(plain) == fingerprint(keeping)
    assert repr(plain) == repr(keeping)
    assert plain == keeping

    def settings_with(masker):
        return c2fa.batch.store.settings_of(c2fa.Explainer(lambda bags: [0.0] * len(bags), masker, progress=False))

    assert settings_with(plain) == settings_with(keeping)
    bag = [PHOTO, PHOTO[:20]]
    assert keeping(bag).structure.names == plain(bag).structure.names == keeping(bag).structure.names
    assert len(list(tmp_path.iterdir())) == 2


def test_a_cache_that_cannot_work_is_refused():
    with pytest.raises(TypeError, match="cache must be the name of a folder, or None; got 3"):
        ImageBag(cache=3)
    with pytest.raises(ValueError, match="a function of yours may keep its own maps"):
        ImageBag(segment=lambda image: image[..., 0], cache="folder")
