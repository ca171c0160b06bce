"""Images: what is absent is gone, what is masked is filled, and nothing is copied without need."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from c2fa.maskers import ImageBag

Image = pytest.importorskip("PIL.Image")
try:
    import torch
except ImportError:  # then these bags hold arrays alone
    torch = None

RNG = np.random.default_rng(3)


def halves(image):
    labels = np.zeros(image.shape[:2], dtype=int)
    labels[:, image.shape[1] // 2 :] = 1
    return labels


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_against_a_slow_loop(data):
    layout = data.draw(st.sampled_from(["grey", "last", "first"]))
    dtype = data.draw(st.sampled_from([np.uint8, np.float32, np.int16]))
    absent, tensor = data.draw(st.sampled_from(["remove", "fill"])), torch is not None and data.draw(st.booleans())
    ragged = data.draw(st.booleans())
    bag = []
    for j in range(3):
        h, w = 4 + (j if ragged else 0), 6
        shape = {"grey": (h, w), "last": (h, w, 3), "first": (3, h, w)}[layout]
        image = (RNG.random(shape) * 200).astype(dtype)
        bag.append(torch.from_numpy(image) if tensor else image)
    masker = ImageBag(halves, absent=absent, fill=5, channels="first" if layout == "first" else "last")
    masked = masker(bag)
    masks = np.array(data.draw(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=4)))
    batch = masked.inputs(masks, 1)
    for row, mask in zip(batch, masks, strict=True):
        assert len(row) == 3
        for j, image in enumerate(bag):
            expected = np.asarray(image).copy()
            half = 3
            axis = {"grey": 1, "last": 1, "first": 2}[layout]
            view = np.moveaxis(expected, axis, 0)
            for k, part in enumerate((slice(0, half), slice(half, 6))):
                if not mask[2 * j + k]:
                    view[part] = 5
            np.testing.assert_array_equal(np.asarray(row[j]), expected)
            assert row[j].dtype == image.dtype
            assert isinstance(row[j], np.ndarray) != tensor


def test_absent_images_leave_the_bag_and_are_never_copied():
    bag = [RNG.random((5, 5, 3)) for _ in range(3)]
    masked = ImageBag(halves)(bag)
    assert not masked.nested
    assert not masked.allows_empty
    (row,) = masked.inputs([[True, False, True]], 0)
    assert [a is b for a, b in zip(row, [bag[0], bag[2]], strict=True)] == [True, True]
    (row,) = masked.inputs([[True, True, False, True, False, False]], 1)
    assert row[0] is bag[0]
    assert (row[1][:, :2] == 0).all()
    assert (row[2] == 0).all(), "an image that stays but has nothing left is filled"


def test_a_dict_names_its_images():
    bag = {"left.png": RNG.random((4, 4)), "right.png": RNG.random((4, 6))}
    masked = ImageBag(halves)(bag)
    assert masked.structure.names == (("left.png", "right.png"), ("1.1", "1.2", "2.1", "2.2"))
    (row,) = masked.inputs([[False, True]], 0)
    assert len(row) == 1
    assert row[0] is bag["right.png"]
    with pytest.raises(ValueError, match="bag is empty"):
        ImageBag(halves)({})


def test_what_the_model_receives():
    equal = [RNG.random((4, 6, 3)).astype(np.float32) for _ in range(2)]
    batch = ImageBag(halves, absent="fill")(equal).inputs(np.ones((5, 2)), 0)
    assert batch.shape == (5, 2, 4, 6, 3)
    assert batch.dtype == np.float32
    images = [Image.fromarray((image * 255).astype(np.uint8)) for image in equal]
    row = ImageBag(halves, absent="fill")(images).inputs([[True, False]], 0)[0]
    assert row[0] is images[0]
    assert isinstance(row[1], Image.Image)
    assert row[1].size == (6, 4)
    for mode in ("P", "CMYK", "YCbCr"):
        rows = ImageBag(halves)([images[0].convert(mode)]).inputs([[True, False], [True, True]], 1)
        assert [row[0].mode for row in rows] == ["RGB", "RGB"], "masked or not, the model sees one kind of image"


def test_half_precision_stays(in_half_precision):
    in_half_precision(
        """
        import numpy as np, torch
        from c2fa.maskers import ImageBag
        from test_maskers_images import halves

        tensors = torch.rand(2, 3, 4, 6).to(torch.bfloat16)
        batch = ImageBag(halves, absent="fill", fill="mean")(tensors).inputs(np.ones((5, 2)), 0)
        assert tuple(batch.shape) == (5, 2, 3, 4, 6)
        assert batch.dtype == torch.bfloat16
        """
    )


@pytest.mark.parametrize("mode", ["1", "L", "LA", "I", "I;16", "F", "RGB", "RGBA"])
def test_modes_of_pil_stay_what_they_are(mode):
    grey = np.array([[10, 20, 30, 40], [50, 60, 70, 255]], dtype=np.uint8)
    image = Image.fromarray(grey.astype(np.uint16) * 200) if mode == "I;16" else Image.fromarray(grey).convert(mode)
    whole, half = ImageBag(halves)([image]).inputs([[True, True], [True, False]], 1)
    assert whole[0] is image
    assert half[0].mode == mode
    np.testing.assert_array_equal(np.asarray(half[0])[:, :2], np.asarray(image)[:, :2])
    assert not np.asarray(half[0])[:, 2:].any()


def test_fills():
    image = np.zeros((4, 4, 3), dtype=np.uint8)
    image[:, 2:] = (100, 50, 11)

    def left_off(fill):
        return ImageBag(halves, fill=fill, regions=1)(image).inputs([[False, True]], 1)[0]

    assert (left_off((1, 2, 3))[0, 0] == (1, 2, 3)).all()
    assert (left_off("mean")[0, 0] == (50, 25, 6)).all()
    assert (left_off("segments")[0, 0] == 0).all()
    for fill in (0, "mean", "segments", "blur"):
        assert (left_off(fill)[:, 2:] == image[:, 2:]).all()
    with pytest.raises(ValueError, match="2 values for 3 channels"):
        left_off((1, 2))
    for bad in (256, -1, (0, 0, 300)):
        with pytest.raises(ValueError, match="does not fit an image of uint8"):
            left_off(bad)


def test_a_single_image_has_regions_of_super_pixels():
    image = np.zeros((24, 24, 3), dtype=np.uint8)
    image[:12, 12:], image[12:, :12], image[12:, 12:] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    quarters = (np.arange(24)[:, None] // 12) * 2 + np.arange(24)[None] // 12
    masked = ImageBag("slic", regions=quarters, options={"n_segments": 36})(image)
    assert masked.structure.widths[0] == 4
    assert masked.structure.widths[1] > 4
    assert masked.nested
    assert masked.allows_empty
    first = masked.inputs([[True, False, False, False]], 0)[0]
    assert first.shape == image.shape
    assert (first[14:, 14:] == 0).all()
    labels = masked.view["labels"][0]
    assert labels.max() + 1 == masked.structure.widths[1]
    assert masked.view["images"][0].dtype == np.uint8


def test_label_maps_and_functions():
    image = RNG.random((4, 6))
    maps = np.array([[10] * 3 + [-5] * 3] * 4)
    assert ImageBag([maps])([image]).structure.names == (("image 1",), ("1.1", "1.2"))
    assert ImageBag(maps, regions=1)(image).structure.widths == (1, 2)
    with pytest.raises(ValueError, match=r"label map of image 0 must hold integers of shape \(4, 6\)"):
        ImageBag([maps.T])([image])
    with pytest.raises(ValueError, match="1 label maps for 2 images"):
        ImageBag([maps])([image, image])


def test_quickshift_is_limes():
    from skimage.segmentation import quickshift

    image = (RNG.random((20, 20, 3)) * 255).astype(np.uint8)
    expected = quickshift(image, kernel_size=4, max_dist=200, ratio=0.2)
    labels = ImageBag()([image]).view["labels"][0]
    assert len(np.unique(np.stack((labels, expected)).reshape(2, -1), axis=1).T) == labels.max() + 1
    assert ImageBag(options={"max_dist": 3})([image]).structure.leaves > labels.max() + 1


def test_views_are_pictures_people_can_see():
    for image in (
        RNG.random((4, 4)),
        RNG.normal(size=(4, 4, 3)),
        np.full((3, 4, 5), 700),
        np.ones((4, 4, 4), bool),
    ):
        (shown,) = ImageBag(halves)([image]).view["images"]
        assert shown.shape in ((4, 4, 3), (4, 5, 3))
        assert shown.dtype == np.uint8


def test_what_is_refused():
    for bad in (
        {"segment": "felz"},
        {"absent": "grey"},
        {"fill": "noise"},
        {"channels": "middle"},
        {"regions": 0},
        {"segment": halves, "options": {"a": 1}},
    ):
        with pytest.raises(ValueError):
            ImageBag(**bad)
    with pytest.raises(ValueError, match="bag is empty"):
        ImageBag()([])
    with pytest.raises(ValueError, match="no axis with 1, 3 or 4 channels"):
        ImageBag(halves)(np.zeros((5, 6, 7)))
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        ImageBag(halves)([np.zeros(2)])
    with pytest.raises(TypeError):
        ImageBag(options={"kernel_width": 3})([np.zeros((4, 4, 3))])


def test_a_missing_extra_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "skimage.segmentation", None)
    with pytest.raises(ImportError, match=r"pip install 'c2fa\[images\]'"):
        ImageBag()([np.zeros((4, 4, 3))])
    ImageBag(halves)([np.zeros((4, 4, 3))])
