"""Images: what is absent is gone, what is masked is filled, and nothing is copied without need."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
from c2fa.maskers import ImageBag
from c2fa.views.images import enlarge

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
        begin = data.draw(st.integers(0, 3))  # a tensor may begin anywhere in its memory
        memory = np.concatenate([np.zeros(begin, dtype), image.ravel()])
        bag.append(torch.from_numpy(memory)[begin:].view(shape) if tensor else image)
    masker = ImageBag(halves, absent=absent, fill=5, channels="first" if layout == "first" else "last")
    masked = masker(bag)
    masks = np.array(data.draw(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=4)))
    check_bags(bag, masked, masks, layout, removes=absent == "remove")
    if absent == "remove":
        check_bags(bag, masked.apart(), masks, layout, removes=False)


def check_bags(bag, masked, masks, layout, removes):
    for row, mask in zip(masked.inputs(masks, 1), masks, strict=True):
        left = [j for j in range(3) if mask[2 * j] or mask[2 * j + 1]] or [0] if removes else range(3)
        assert len(row) == len(left)
        for shown, j in zip(row, left, strict=True):
            image = bag[j]
            expected = np.asarray(image).copy()
            half = 3
            axis = {"grey": 1, "last": 1, "first": 2}[layout]
            view = np.moveaxis(expected, axis, 0)
            for k, part in enumerate((slice(0, half), slice(half, 6))):
                if not mask[2 * j + k]:
                    view[part] = 5
            np.testing.assert_array_equal(np.asarray(shown), expected)
            assert shown.dtype == image.dtype
            assert type(shown) is type(image)


def test_absent_images_leave_the_bag_and_are_never_copied():
    bag = [RNG.random((5, 5, 3)) for _ in range(3)]
    masked = ImageBag(halves)(bag)
    assert masked.allows_empty
    for masks, level in (([[True, False, True]], 0), ([[True, True, False, False, True, True]], 1)):
        (row,) = masked.inputs(masks, level)
        assert [a is b for a, b in zip(row, [bag[0], bag[2]], strict=True)] == [True, True]
    (row,) = masked.inputs([[True, True, False, True, False, False]], 1)
    assert len(row) == 2, "an image goes with its last super-pixel"
    assert row[0] is bag[0]
    assert (row[1][:, :2] == 0).all()
    assert (row[1][:, 2:] == bag[1][:, 2:]).all()
    for empty, level in (([[False] * 3], 0), ([[False] * 6], 1)):
        ((image,),) = masked.inputs(empty, level)
        assert (image == 0).all(), "the first image, filled, stands for a bag without images"
        assert image.shape == bag[0].shape


def test_the_papers_masks_of_super_pixels_remove_no_image():
    bag = [RNG.random((5, 5, 3)) for _ in range(3)]
    apart = ImageBag(halves)(bag).apart()
    assert not apart.allows_empty
    (row,) = apart.inputs([[True, False, True]], 0)
    assert [a is b for a, b in zip(row, [bag[0], bag[2]], strict=True)] == [True, True]
    (row,) = apart.inputs([[True, True, False, True, False, False]], 1)
    assert row[0] is bag[0]
    assert (row[1][:, :2] == 0).all()
    assert (row[2] == 0).all(), "an image that stays but has nothing left is filled"


def test_a_dict_names_its_images():
    bag = {"left.png": RNG.random((4, 4)), "right.png": RNG.random((4, 6))}
    masked = ImageBag(halves)(bag)
    places = ("left.png #1, centre left", "left.png #2, centre right", "right.png #1, centre left")
    assert masked.structure.names == (("left.png", "right.png"), (*places, "right.png #2, centre right"))
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
    for image in (equal[0], *([] if torch is None else [torch.from_numpy(equal[0])])):
        assert ImageBag(halves)(image).inputs(np.ones((0, 2), dtype=bool), 1).shape == (0, 4, 6, 3)
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
    assert masked.apart is None
    assert masked.allows_empty
    first = masked.inputs([[True, False, False, False]], 0)[0]
    assert first.shape == image.shape
    assert (first[14:, 14:] == 0).all()
    labels = masked.view.labels[0]
    assert labels.max() + 1 == masked.structure.widths[1]
    assert masked.view.images[0].dtype == np.uint8
    few = [ImageBag("slic", regions=count)(image).structure.widths for count in (4, np.int64(4))]
    assert few[0] == few[1]


def test_label_maps_and_functions():
    image = RNG.random((4, 6))
    maps = np.array([[10] * 3 + [-5] * 3] * 4)
    names = ("image 1 #1, centre right", "image 1 #2, centre left")
    assert ImageBag([maps])([image]).structure.names == (("image 1",), names)
    assert ImageBag(maps, regions=1)(image).structure.widths == (1, 2)
    with pytest.raises(ValueError, match=r"label map of image 0 must hold integers of shape \(4, 6\)"):
        ImageBag([maps.T])([image])
    with pytest.raises(ValueError, match="1 label maps for 2 images"):
        ImageBag([maps])([image, image])


def test_quickshift_is_limes():
    from skimage.segmentation import quickshift

    image = (RNG.random((20, 20, 3)) * 255).astype(np.uint8)
    expected = quickshift(image, kernel_size=4, max_dist=200, ratio=0.2)
    labels = ImageBag()([image]).view.labels[0]
    assert len(np.unique(np.stack((labels, expected)).reshape(2, -1), axis=1).T) == labels.max() + 1
    assert ImageBag(options={"max_dist": 3})([image]).structure.leaves > labels.max() + 1


def test_views_are_pictures_people_can_see():
    for image in (
        RNG.random((4, 4)),
        RNG.normal(size=(4, 4, 3)),
        np.full((3, 4, 5), 700),
        np.ones((4, 4, 4), bool),
    ):
        (shown,) = ImageBag(halves)([image]).view.images
        assert shown.shape in ((4, 4, 3), (4, 5, 3))
        assert shown.dtype == np.uint8


def test_what_is_refused():
    for bad in (
        {"segment": "felz"},
        {"absent": "grey"},
        {"fill": "noise"},
        {"channels": "middle"},
        {"regions": 0},
        {"regions": np.int64(0)},
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
        ImageBag("slic")([np.zeros((4, 4, 3))])
    ImageBag(halves)([np.zeros((4, 4, 3))])


# -- photos --------------------------------------------------------------------------------------------


def photo(height: int = 700, width: int = 1100) -> np.ndarray:
    """Six coloured fields, each of another brightness, with noise."""
    y, x = np.mgrid[:height, :width]
    field = (2 * y // height) * 3 + 3 * x // width
    colours = np.array([(200, 30, 30), (30, 200, 30), (30, 30, 200), (220, 220, 40), (40, 220, 220), (120, 120, 120)])
    return np.clip(colours[field] + RNG.normal(0, 4, (height, width, 3)), 1, 255).astype(np.uint8)


PHOTO = photo()


@pytest.mark.parametrize("layout", ["last", "first", "grey", "tensor", "pil"])
def test_a_photo_is_segmented_small_and_masked_at_full_size(layout: str) -> None:
    if layout == "tensor":
        pytest.importorskip("torch")
    given = {
        "last": lambda: PHOTO,
        "first": lambda: np.moveaxis(PHOTO, -1, 0).copy(),
        "grey": lambda: PHOTO[..., 0].copy(),
        "tensor": lambda: torch.from_numpy(np.moveaxis(PHOTO, -1, 0).copy()),
        "pil": lambda: Image.fromarray(PHOTO),
    }[layout]()
    masked = ImageBag("slic", regions=3)(given)
    (labels,), (shown,) = masked.view.labels, masked.view.images
    assert labels.shape == shown.shape[:2] == (325, 512)
    assert masked.view.sizes == ((700, 1100),)
    mask = np.ones((1, masked.structure.leaves), dtype=bool)
    mask[0, 3] = False
    out = np.asarray(masked.inputs(mask, 1)[0])
    assert out.shape == np.asarray(given).shape
    changed = out != np.asarray(given)
    if changed.ndim == 3:
        changed = changed.any(axis=0 if layout in ("first", "tensor") else -1)
    np.testing.assert_array_equal(changed, enlarge(labels, (700, 1100)) == 3)


def test_an_image_of_at_most_512_pixels_is_segmented_as_it_is() -> None:
    seen = []

    def watched(image: np.ndarray) -> np.ndarray:
        seen.append(image.shape)
        return halves(image)

    small = ImageBag("slic")([PHOTO[:300, :512]])
    assert small.view.labels[0].shape == (300, 512)
    large = ImageBag(watched)([PHOTO])
    assert seen == [(700, 1100, 3)], "a function of the user's gets the image itself"
    assert large.view.labels[0].shape == (700, 1100)
    assert large.view.images[0].shape == (325, 512, 3)
    assert ImageBag(watched, regions=2)(PHOTO).structure.leaves == 2
    assert ImageBag("slic", regions=halves)(PHOTO).structure.widths[0] == 2


@pytest.mark.parametrize("fill", ["mean", "segments", "blur"])
def test_fills_of_a_photo(fill: str) -> None:
    masked = ImageBag("slic", fill=fill, regions=1)(PHOTO)
    out = masked.inputs(np.zeros((1, masked.structure.leaves), dtype=bool), 1)[0]
    assert out.shape == PHOTO.shape
    assert np.abs(out.mean(axis=(0, 1)) - PHOTO.mean(axis=(0, 1))).max() < 3
    if fill != "mean":
        assert np.abs(out[300:320, 60:80].astype(int) - PHOTO[300:320, 60:80]).mean() < 25


def test_what_is_kept_of_a_photo_is_small(tmp_path: Path) -> None:
    explainer = c2fa.Explainer(lambda b: [x.mean() / 255 for x in b], ImageBag("slic"), budget=20, progress=False)
    e = explainer(PHOTO)
    e.save(tmp_path / "e.json")
    assert (tmp_path / "e.json").stat().st_size < PHOTO.nbytes / 3
    (heat,) = c2fa.load(tmp_path / "e.json").heatmap()
    np.testing.assert_array_equal(heat, e.heatmap()[0])


def test_too_many_super_pixels_are_warned_of() -> None:
    def speckled(image: np.ndarray) -> np.ndarray:
        return np.arange(400).reshape(20, 20)

    def explain(masker: ImageBag) -> tuple[str, ...]:
        model = lambda bags: [sum(i.mean() for i in bag) for bag in bags]  # noqa: E731
        image = (RNG.random((20, 20, 3)) * 255).astype(np.uint8)
        return c2fa.Explainer(model, masker, budget=(4, 20), progress=False)([image, image]).diagnostics.warnings

    told = [w for w in explain(ImageBag(speckled)) if "too many to look at" in w]
    assert len(told) == 1
    assert "image 1 has 400 super-pixels" in told[0]
    assert "a coarser segment=" in told[0]
    fine = ImageBag("slic", options={"n_segments": 390, "compactness": 1000.0, "min_size_factor": 0.0})
    assert any("take fewer with options={'n_segments': 50}" in w for w in explain(fine))
    assert not any("too many" in w for w in explain(ImageBag(halves)))


def test_regions_that_share_a_place_are_numbered() -> None:
    columns = np.repeat(np.arange(12)[None], 4, axis=0)
    masked = ImageBag(columns, regions=columns // 2)(RNG.random((4, 12)))
    assert masked.structure.names[0] == (
        "centre left 1", "centre left 2", "centre 1", "centre 2", "centre right 1", "centre right 2",
    )  # fmt: skip
    assert masked.structure.names[1][4] == "#5, centre"


def test_what_surrounds_the_centre_is_not_called_centre() -> None:
    ring = np.zeros((9, 9), dtype=int)
    ring[2:7, 2:7] = 1
    names = ImageBag([ring])([RNG.random((9, 9))]).structure.names[1]
    assert names[0] != "image 1 #1, centre"
    assert names[1] == "image 1 #2, centre"


# -- paths and addresses -------------------------------------------------------------------------------


def saved(folder: Path, name: str, image: np.ndarray = PHOTO[:40, :60], **options: object) -> Path:
    path = folder / name
    Image.fromarray(image).save(path, **options)
    return path


def test_paths_are_images(tmp_path: Path) -> None:
    one, two = saved(tmp_path, "one.png"), saved(tmp_path, "two.png", PHOTO[:30, :30])
    bag = ImageBag(halves)([one, str(two), PHOTO[:20, :20]])
    assert bag.structure.names[0] == ("one.png", "two.png", "image 3")
    (row,) = bag.inputs([[True, True, False]], 0)
    assert [image.size for image in row] == [(60, 40), (30, 30)]
    np.testing.assert_array_equal(np.asarray(row[0]), PHOTO[:40, :60])
    single = ImageBag(halves, regions=1)(str(one))
    assert single.view.name == "one.png"
    assert single.inputs([[True, False]], 1)[0].size == (60, 40)
    (tmp_path / "other").mkdir()
    again = saved(tmp_path / "other", "one.png")
    assert ImageBag(halves)([one, again]).structure.names[0] == (str(one), str(again))


def test_a_photo_is_turned_as_its_camera_was_held(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = saved(tmp_path, "turned.jpg", exif=exif)
    assert ImageBag(halves)([turned]).view.sizes == ((60, 40),)


def test_a_ledger_goes_by_what_a_file_holds(tmp_path: Path) -> None:
    path = saved(tmp_path, "photo.png")
    model = lambda b: [np.asarray(x).mean() for x in b]  # noqa: E731
    settings_ = {"budget": 8, "ledger": tmp_path / "l.sqlite", "model_name": "m", "progress": False}
    explainer = c2fa.Explainer(model, ImageBag(halves, regions=1), **settings_)
    first = explainer(path)
    assert explainer(path).diagnostics.sent == 0
    saved(tmp_path, "photo.png", PHOTO[400:440, 500:560])
    changed = explainer(path)
    assert changed.diagnostics.sent > 0
    assert changed.prediction != first.prediction


def test_what_is_no_image_is_refused(tmp_path: Path) -> None:
    for bad, said in {
        "https://example.org/a.png?key=hidden": "there is no file .*at an address must be downloaded first",
        str(tmp_path / "absent.png"): "there is no file",
        str(tmp_path): "there is no file",
        "a" * 5000: "there is no file",
    }.items():
        with pytest.raises(FileNotFoundError, match=said) as refused:
            ImageBag(halves)([bad])
        assert "hidden" not in str(refused.value), "what follows the path may be a key"
        assert len(str(refused.value)) < 400
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(ValueError, match=r"cannot read .*text\.png' as an image"):
        ImageBag(halves)([tmp_path / "text.png"])
