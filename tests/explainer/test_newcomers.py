"""What people who come from shap and lime try first, and what they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import c2fa
import showcases
from c2fa import maskers

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
        (lambda: showcases.explain_text().plot(colours="red"), "colours must be .*got 'red'"),
    ],
)
def test_what_went_wrong_is_said_with_the_next_step(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        call()


def test_a_level_has_a_name() -> None:
    e = showcases.explain_text()
    assert e.top(3, level="sentences") == e.top(3, level=0)
    assert e.as_list("words") == e.as_list(-1)


def test_a_pair_of_texts_is_a_tuple() -> None:
    model = lambda pairs: [float("good" in a) + float("good" in b) for a, b in pairs]  # noqa: E731
    assert c2fa.Explainer(model, maskers.Text(), budget=40)(("A good day.", "No good.")).prediction == 2.0


@pytest.mark.parametrize("explain", [showcases.explain_text, showcases.explain_table, showcases.explain_series])
def test_colours_are_shaps_where_they_are_wanted(explain: Callable[[], Any]) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.colors import to_rgb

    def has(figure: Any, colour: str) -> bool:
        figure.canvas.draw()
        pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)
        return bool((np.abs(pixels - 255 * np.array(to_rgb(colour))).max(axis=-1) < 3).any())

    e, blue_for, red_for = explain(), "#155a96", "#ff0051"
    assert has(e.plot(colours="shap"), red_for)
    assert not has(e.plot(), red_for)
    assert not has(e.plot(colours="shap"), blue_for)


def test_an_images_legend_has_numbers() -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("skimage")
    e = showcases.explain_image()
    titles = [ax.get_title() for ax in e.plot().axes]
    for values in e.values:
        assert any(f"full tint ±{np.abs(values).max():.3g}" in title for title in titles)
