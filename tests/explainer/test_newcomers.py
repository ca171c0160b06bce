"""What people who come from shap and lime try first, and what they are told."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import c2fa
import showcases
from c2fa import maskers, methods
from c2fa.report._page import pack

SENTIMENT = c2fa.models.DemoSentiment()
REVIEW = "A great book. The end was bad."
ARRAY = maskers.Array(c2fa.Structure.from_groups("aab"))


def sums(batch: Any) -> Any:
    return np.asarray(batch, dtype=float).sum(axis=1)


def test_a_text_needs_no_masker() -> None:
    e = c2fa.Explainer(SENTIMENT, budget=60)(REVIEW)
    assert e.provenance["masker"] == "Text(), by default"
    given = c2fa.Explainer(SENTIMENT, maskers.Text(), budget=60)(REVIEW)
    assert "masker" not in given.provenance
    np.testing.assert_array_equal(e.low, given.low)


def test_rows_that_tell_nothing_are_said_to() -> None:
    rough = c2fa.Explainer(SENTIMENT, budget=3)(REVIEW)
    assert rough.diagnostics.levels[-1].r2_left_out is None
    assert rough.diagnostics.warnings == ("3 rows do not tell how rough these values are: raise the budget",)
    assert c2fa.Explainer(SENTIMENT, budget=3)("good").diagnostics.exact == (True, True)


def test_an_image_needs_no_masker() -> None:
    pytest.importorskip("skimage", reason="it is cut into super-pixels")
    e = c2fa.Explainer(lambda batch: [np.asarray(x).mean() for x in batch], budget=20)(showcases.picture(1))
    assert e.provenance["masker"] == "ImageBag(), by default"
    assert e.level_names[-1] == "super-pixels"


@pytest.mark.parametrize("kind", ["frame", "series", "dict", "vector"])
def test_a_row_needs_no_masker_and_says_what_stands_for_masked_values(kind: str) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"age": [40.0], "town": ["Bern"], "member": [True]})
    x = {"frame": frame, "series": frame.iloc[0], "dict": frame.iloc[0].to_dict(), "vector": np.array([40.0, 2.0])}[
        kind
    ]

    def model(batch: Any) -> Any:
        if kind == "vector":
            return batch[:, 0]
        rows = pd.DataFrame(batch)
        return rows["age"] + 8.0 * (rows["town"] == "Bern") + rows["member"]

    e = c2fa.Explainer(model)(x)
    assert e.provenance["masker"] == "Tabular(background=0), by default"
    assert any("Tabular(background=…)" in warning for warning in e.diagnostics.warnings)
    assert dict(e.top()) == pytest.approx(
        {"0": 40.0, "1": 0.0} if kind == "vector" else {"age": 40, "town": 8, "member": 1}
    )


def test_many_take_the_masker_of_each() -> None:
    found = c2fa.Explainer(SENTIMENT, budget=40).many([REVIEW, "One more."])
    assert [e.provenance["masker"] for e in found] == ["Text(), by default"] * 2


def frame(rows: int = 3) -> Any:
    return pytest.importorskip("pandas").DataFrame(np.ones((rows, 2)), columns=["a", "b"])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: c2fa.Explainer(SENTIMENT)([REVIEW, "Two."]), r"a list of 2: explainer.many\(inputs\)"),
        (lambda: c2fa.Explainer(SENTIMENT, maskers.Text())([REVIEW, "Two."]), r"a list of 2: explainer.many\(texts\)"),
        (lambda: c2fa.Explainer(SENTIMENT, maskers.Text())(np.array(["One.", "Two."])), r"explainer.many\(texts\)"),
        (lambda: c2fa.Explainer(sums)(frame()), r"not 3: .*explainer.many\(df\)"),
        (lambda: c2fa.Explainer(sums, maskers.Tabular(background=frame()))(frame()), r"explainer.many\(df\)"),
        (lambda: c2fa.Explainer(sums, maskers.Tabular(background=frame()))(np.ones((3, 2))), r"explainer.many\(rows\)"),
        (lambda: c2fa.Explainer(sums, ARRAY)(np.ones((5, 3))), r"shape \(5, 3\); explainer.many\(rows\)"),
        (lambda: c2fa.Explainer(sums)(np.ones((5, 3))), r"no masker by default for ndarray of shape \(5, 3\)"),
        (lambda: c2fa.Explainer(maskers.Text(), SENTIMENT), r"model comes first .*Explainer\(model, Text\(…\)\)"),
        (lambda: c2fa.Explainer(sums, ARRAY, method="oven"), "'shapley'.*got 'oven'; did you mean 'owen'"),
        (lambda: c2fa.Explainer(sums, ARRAY, nsamples=9), "no option 'nsamples'; it has .*; did you mean 'budget'"),
        (lambda: c2fa.Explainer(sums, ARRAY, link="Logits"), "'identity', .*got 'Logits'; did you mean 'logit'"),
        (lambda: c2fa.Explainer(sums, ARRAY, on_error="drp"), "got 'drp'; did you mean 'drop'"),
        (lambda: c2fa.Explainer(SENTIMENT, target="Positiv")(REVIEW), "negative, positive; did you mean 'positive'"),
        (
            lambda: c2fa.Explainer(sums, ARRAY).many(np.ones((2, 3)), wrokers=2),
            "has no option 'wrokers'; it has .*'workers'",
        ),
        (lambda: showcases.explain_text().top(level="word"), "the levels are sentences, words; did you mean 'words'"),
        (lambda: showcases.explain_text().plot("nestd"), "did you mean 'nested'"),
    ],
)
def test_what_went_wrong_is_said_with_the_next_step(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        call()


def test_a_level_has_a_name() -> None:
    e = showcases.explain_text()
    assert e.top(3, level="sentences") == e.top(3, level=0)
    assert e.top(9, "words") == e.top(9, -1)


def test_a_pair_of_texts_is_a_tuple() -> None:
    model = lambda pairs: [float("good" in a) + float("good" in b) for a, b in pairs]  # noqa: E731
    assert c2fa.Explainer(model, maskers.Text(), budget=40)(("A good day.", "No good.")).prediction == 2.0


def test_an_images_legend_has_numbers() -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("skimage")
    e = showcases.explain_image()
    titles = [ax.get_title() for ax in e.plot().axes]
    for values in e.values:
        assert any(f"full tint ±{np.abs(values).max():.3g}" in title for title in titles)


# -- small and untrue things -------------------------------------------------------------------------------------------


def test_a_part_that_is_shown_as_0_has_no_bar() -> None:
    """A channel that is filled by its own mean is 0 but for rounding, which once had the longest bar."""
    recording = np.random.default_rng(0).normal(size=40)
    e = c2fa.Explainer(sums, maskers.TimeSeries(windows=4), budget=40)(recording)
    [line] = [line for line in str(e).splitlines() if line.endswith("channel 1")]
    assert line.split() == ["0.000", "±", "0.000", "channel", "1"]


def test_a_value_and_its_error_are_in_one_unit() -> None:
    """A small value beside a large error is small, and not `+4.44e-06 ± 183627.64e-06`."""
    e = showcases.explain_table()
    tiny = dataclasses.replace(
        e,
        all_values=tuple(1e-6 * v for v in e.all_values),
        all_stderr=tuple(np.full_like(v, 0.1836) for v in e.all_values),
    )
    assert "± 0.184" in str(tiny)
    assert "e-0" not in str(tiny)


def test_the_errors_of_a_page_have_the_digits_of_the_text() -> None:
    e = showcases.explain_table()
    assert e.stderr is not None
    e = dataclasses.replace(e, all_stderr=tuple(np.full_like(v, 0.7894) for v in e.all_values))
    packed = pack(e, "", 100)["stderr"][0]
    numbers = np.frombuffer(base64.b64decode(packed["data"]), dtype=f"<i{packed['bytes']}")
    assert f"± {e.rounded.text(float(numbers[0]), sign=False)}" in str(e)


def test_a_bag_keeps_the_names_of_a_frame() -> None:
    bag = frame(2).rename(index={0: "first", 1: "second"})
    assert maskers.Bag()(bag).structure.names == (
        ("first", "second"),
        ("first · a", "first · b", "second · a", "second · b"),
    )
    assert maskers.Bag()(frame(2)).structure.names[0] == ("instance 1", "instance 2")
    assert maskers.Bag(names=["x", "y"])(bag).structure.names[1][0] == "first · x"


def test_a_recording_keeps_the_name_of_a_series() -> None:
    pd = pytest.importorskip("pandas")
    masker = maskers.TimeSeries(windows=2)
    assert masker(pd.Series(np.arange(8.0), name="pulse")).structure.names[0] == ("pulse",)
    assert masker(pd.Series(np.arange(8.0))).structure.names[0] == ("channel 1",)
    assert masker(pd.DataFrame(np.ones((8, 2)), columns=["pulse", "breath"])).structure.names[0] == ("pulse", "breath")


def test_more_windows_than_samples_is_said() -> None:
    e = c2fa.Explainer(sums, maskers.TimeSeries(windows=10), budget=20)(np.arange(5.0))
    assert any("10 windows for 5 steps" in warning for warning in e.diagnostics.warnings)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: c2fa.Explainer(sums, ARRAY, method=lambda task: 3),
            r"derives from c2fa.methods.BaseMethod, not <",
        ),
        (lambda: c2fa.Explainer(sums, ARRAY, method=methods.Owen), r"not the class Owen: write Owen\(\)"),
        (lambda: c2fa.Explainer(sums, lambda mask, x: x), r"masker .*takes one argument.*c2fa.maskers.Custom"),
        (lambda: c2fa.Explainer(sums, maskers.Bag), r"not the class Bag: write Bag\(\)"),
        (lambda: c2fa.Explainer(sums, lambda x: x)(np.ones(3)), r"must return a c2fa.Masked.*maskers.Custom"),
    ],
)
def test_a_function_given_as_method_or_masker_gets_a_sentence(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        call()


def test_a_batch_of_one_image_gets_a_hint() -> None:
    pytest.importorskip("skimage")
    batch = np.moveaxis(showcases.picture(1), -1, 0)[None]

    def model(images: Any) -> Any:
        raise RuntimeError("expected 3 channels")

    with pytest.raises(TypeError, match=r"of shape \(1, 3, \d+, \d+\): give x\[0\], the image itself"):
        c2fa.Explainer(model)(batch)
    with pytest.raises(c2fa.QueryError, match=r"RuntimeError: expected 3 channels.*bag of one image: give x\[0\]"):
        c2fa.Explainer(model, maskers.ImageBag())(batch)
    e = c2fa.Explainer(lambda bags: [np.mean(bag) for bag in bags], maskers.ImageBag(), budget=9)(batch)
    assert any("bag of one image: give x[0]" in warning for warning in e.diagnostics.warnings)


@pytest.mark.parametrize(("first", "hint"), [(False, r"x.transpose\(2, 0, 1\)"), (True, r"x.transpose\(1, 2, 0\)")])
def test_channels_on_the_other_side_get_a_hint(first: bool, hint: str) -> None:
    pytest.importorskip("skimage")
    image = showcases.picture(1)

    def model(images: Any) -> Any:
        raise RuntimeError("expected other channels")

    with pytest.raises(c2fa.QueryError, match=rf"are {'first' if first else 'last'}: .*{hint}"):
        c2fa.Explainer(model)(np.moveaxis(image, -1, 0) if first else image)


@pytest.mark.parametrize("language", ["xx", "english", "EN", "", "en-US"])
def test_a_language_that_does_not_exist_is_refused(language: str) -> None:
    with pytest.raises(ValueError, match=rf"language must be .*got {language!r}"):
        maskers.Text(language=language)


def test_a_fence_of_markdown_is_not_cut() -> None:
    fence = "```python\nx = f(1). y\n\nprint(x)\n\n\n# Done. Over.\n```"
    text = f"Look at it:\n\n{fence}\n\nIt works. Yes."
    for levels in (("paragraphs", "words"), ("sentences", "words"), ("paragraphs", "sentences", "words")):
        parts = maskers.Text(levels=levels)(text).structure.names[0]
        assert [part for part in parts if "```" in part or "print" in part] == [" ".join(fence.split())]
        assert parts[0] == "Look at it:"


def test_a_fence_that_is_never_closed_goes_to_the_end() -> None:
    parts = maskers.Text()("Look. See.\n~~~\nA. B.\n\nC. D.").structure.names[0]
    assert parts == ("Look.", "See.", "~~~ A. B. C. D.")


def test_dir_has_what_is_meant_to_be_used() -> None:
    assert set(c2fa.__all__) <= set(dir(c2fa))
    assert not {"Any", "TYPE_CHECKING", "find_spec", "import_module", "_LATER", "asking"} & set(dir(c2fa))


def test_an_error_of_the_model_comes_first() -> None:
    def model(batch: Any) -> Any:
        raise KeyError("colour")

    with pytest.raises(c2fa.QueryError, match=r"^KeyError: 'colour' \(raised by the model, asked about masks 0–0 of 1"):
        c2fa.Explainer(model, ARRAY)(np.ones(3))
