"""What shap's plots are given: values of the input, white space, base values, errors; and what they draw of it."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from decimal import Decimal
from html import unescape
from typing import Any

import numpy as np
import pytest

import c2fa
import showcases

shap = pytest.importorskip("shap", reason="to_shap makes shap's explanations")
plt = pytest.importorskip("matplotlib.pyplot", reason="shap draws with pyplot")

MEASURES = ["ash", "hue", "proline"]


@pytest.fixture(autouse=True)
def own_figures(monkeypatch):
    """Close what shap draws: it leaves its figures to pyplot."""
    monkeypatch.setattr(plt, "show", lambda: None)
    plt.switch_backend("agg")
    yield
    plt.close("all")


def explain_rows(rows: Any, **options: Any) -> list[Any]:
    """Explanations of rows of three numbers by a model that adds two of them."""
    masker = c2fa.maskers.Tabular({"colour": ["hue"]}, background=[[1.0, 1.0, 100.0]], names=MEASURES)
    explainer = c2fa.Explainer(
        lambda x: 0.5 * x[:, 0] - 0.01 * x[:, 2], masker, budget=30, output_names=["quality"], **options
    )
    return [explainer(row) for row in rows]


ROWS = np.array([[2.0, 1.5, 300.0], [3.0, 0.5, 150.0], [4.0, 1.0, 900.0], [0.5, 2.0, 120.0]])


def labels(axes: Any) -> list[str]:
    """The names that stand beside the rows of a plot; shap writes each of them twice."""
    found = [label.get_text().strip() for label in axes.get_yticklabels()]
    return found[: len(found) // 2]


# -- tables and vectors ------------------------------------------------------------------------------


def test_a_row_has_its_numbers_as_data():
    e = explain_rows(ROWS[:1])[0]
    theirs = e.to_shap()
    assert theirs.data.dtype == np.float64
    np.testing.assert_array_equal(theirs.data, ROWS[0])
    np.testing.assert_array_equal(theirs.values, e.low)
    np.testing.assert_array_equal(theirs.error_std, e.stderr[-1])
    assert theirs.base_values == e.intercepts[-1]
    assert theirs.feature_names == MEASURES
    assert theirs.output_names == "quality"


def test_groups_have_no_value_of_their_own():
    e = explain_rows(ROWS[:1])[0]
    theirs = e.to_shap(level=0)
    assert theirs.data is None
    np.testing.assert_array_equal(theirs.values, e.high)
    shap.plots.bar(theirs, show=False)
    assert sorted(labels(plt.gca())) == sorted(e.names[0])


def test_cells_are_numbers_where_they_are_numbers():
    row = {"n": 3, "price": Decimal("2.5"), "member": True, "left": None, "day": date(2024, 2, 29), "code": "007"}
    masker = c2fa.maskers.Tabular(background=[dict(row, n=0)], strategy="row")
    e = c2fa.Explainer(lambda rows: [float(r["n"]) for r in rows], masker, budget=20)(row)
    cells = e.to_shap().data.tolist()
    assert cells[:3] == [3.0, 2.5, 1.0]
    assert np.isnan(cells[3])
    assert cells[4:] == ["2024-02-29", "007"]


def test_bar_and_waterfall_show_the_values_of_the_row():
    theirs = showcases.explain_table().to_shap()
    for plot in (shap.plots.bar, shap.plots.waterfall):
        plt.figure()
        plot(theirs, show=False)
        shown = labels(plt.gcf().axes[0])
        assert "58000 = salary" in shown
        assert "Zürich = town" in shown
        plt.close()


def test_a_waterfall_leads_from_the_intercept_to_the_sum_with_error_bars_of_one_standard_error():
    e = explain_rows(ROWS[:1])[0]
    theirs = e.to_shap()
    np.testing.assert_allclose(theirs.upper_bounds - theirs.values, e.stderr[-1])
    np.testing.assert_allclose(theirs.values - theirs.lower_bounds, e.stderr[-1])
    shap.plots.waterfall(theirs, show=False)
    ends = [tick for axes in plt.gcf().axes[1:] for tick in axes.get_xticks()]
    assert min(abs(np.array(ends) - e.intercepts[-1])) < 1e-6
    assert min(abs(np.array(ends) - (e.intercepts[-1] + e.low.sum()))) < 1e-6


def test_many_rows_are_stacked_and_the_beeswarm_is_coloured_by_their_values():
    several = explain_rows(ROWS)
    theirs = c2fa.to_shap(several)
    assert theirs.values.shape == (4, 3)
    np.testing.assert_array_equal(theirs.values, [e.low for e in several])
    np.testing.assert_array_equal(theirs.data, ROWS)
    np.testing.assert_array_equal(theirs.base_values, [e.intercepts[-1] for e in several])
    np.testing.assert_array_equal(theirs.error_std, [e.stderr[-1] for e in several])
    np.testing.assert_array_equal(theirs[2].data, ROWS[2])
    shap.plots.beeswarm(theirs, show=False)
    drawn = plt.gcf().axes[0].collections
    coloured = [np.sort(points.get_array()) for points in drawn if points.get_array() is not None]
    # The row that matters most is drawn last; shap trims the colours at its 5th and 95th percentile.
    trimmed = np.clip(ROWS[:, 2], *np.percentile(ROWS[:, 2], [5, 95]))
    np.testing.assert_allclose(coloured[-1], np.sort(trimmed))


def test_a_mean_of_many_rows_is_a_bar_for_each_column():
    theirs = c2fa.to_shap(explain_rows(ROWS))
    shap.plots.bar(theirs, show=False)
    assert sorted(labels(plt.gca())) == sorted(MEASURES)
    lengths = [bar.get_width() for bar in plt.gca().patches]
    np.testing.assert_allclose(sorted(lengths), np.sort(np.abs(theirs.values).mean(axis=0)), atol=1e-12)


def test_text_cells_leave_the_numbers_of_other_columns_coloured():
    masker = c2fa.maskers.Tabular(background=[{"n": 0, "town": "Bern"}], strategy="row")
    explainer = c2fa.Explainer(lambda rows: [float(r["n"]) for r in rows], masker, budget=10)
    theirs = c2fa.to_shap([explainer({"n": n, "town": town}) for n, town in [(1, "Rome"), (2, "Oslo"), (5, "Rome")]])
    assert theirs.data[:, 0].tolist() == [1.0, 2.0, 5.0]
    assert theirs.data[:, 1].tolist() == ["Rome", "Oslo", "Rome"]
    shap.plots.beeswarm(theirs, show=False)


def test_the_entries_of_vectors_and_bags_are_the_data():
    bag = showcases.explain_bag()
    np.testing.assert_array_equal(bag.to_shap().data, np.ravel(bag.view.values))
    np.testing.assert_array_equal(showcases.explain_array(["a", "a", "b"]).to_shap().data, np.ones(3))


@pytest.mark.parametrize("order", ["channels", "windows"])
def test_a_window_has_its_mean_as_data(order):
    series = np.arange(24.0).reshape(2, 12)
    series[1, 3:6] = np.nan, 100.0, np.nan
    series[0, 9:] = np.nan
    masker = c2fa.maskers.TimeSeries(windows=4, order=order, names=["a", "b"], time_axis=1)
    theirs = c2fa.Explainer(lambda x: np.nan_to_num(x)[:, 0, 0], masker, budget=30)(series).to_shap()
    expected = {"a": [1.0, 4.0, 7.0, np.nan], "b": [13.0, 100.0, 19.0, 22.0]}
    spans = ["0–2", "3–5", "6–8", "9–11"]
    for name, value in zip(theirs.feature_names, theirs.data, strict=True):
        channel, window = name.split(" · ") if order == "channels" else reversed(name.split(" · "))
        np.testing.assert_equal(value, expected[channel][spans.index(window)])


def test_without_standard_errors_there_are_none():
    theirs = c2fa.to_shap(explain_rows(ROWS[:2], penalty=c2fa.L1(0.01)))
    assert theirs.error_std is None
    assert theirs.lower_bounds is None
    shap.plots.waterfall(theirs[0], show=False)


def test_an_explanation_read_from_a_file_draws_the_same(tmp_path):
    e = showcases.explain_table()
    e.save(tmp_path / "e.json")
    ours, theirs = e.to_shap(), c2fa.load(tmp_path / "e.json").to_shap()
    np.testing.assert_array_equal(ours.values, theirs.values)
    assert ours.data.tolist() == theirs.data.tolist()


# -- texts -------------------------------------------------------------------------------------------

TEXT = "  “Not bad!” she said.\n\nThe view,\tthough, was great…  I would   stay again. "


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("text", [TEXT, showcases.REVIEW, showcases.HEBREW], ids=["spaces", "review", "hebrew"])
def test_the_pieces_of_a_text_are_the_text(text, level):
    theirs = showcases.explain_text(text, budget=40).to_shap(level)
    assert "".join(theirs.data) == text
    assert len(theirs.data) == len(theirs.values)


def test_the_text_plot_prints_the_text_with_its_spaces():
    e = showcases.explain_text(showcases.HOSTILE, budget=60)
    page = shap.plots.text(e.to_shap(), display=False)
    words = re.findall(r"_tp_\w+_ind_\d+'.*?>([^<]*)</div></div>", page, re.DOTALL)
    assert unescape("".join(words)) == unescape(showcases.HOSTILE)
    assert "positive" in page


def test_the_text_plot_has_colours_where_numpy_prints_numbers_alone():
    e = showcases.explain_text("A great view. Bad food.", budget=30)
    with np.printoptions(legacy="1.21"):  # as docs/shap.md says
        page = shap.plots.text(e.to_shap(), display=False)
    assert "np.float64" not in page
    assert len(re.findall(r"background: rgba\([\d., ]+\)", page)) == 5


def test_bars_of_a_text_say_which_sentence_a_word_is_in():
    e = showcases.explain_text()
    shap.plots.bar(e.to_shap(), show=False)
    assert any(label.endswith("= wonderful.") and label.startswith("sentence 1") for label in labels(plt.gca()))
    plt.close()
    shap.plots.waterfall(e.to_shap(0), show=False)
    assert any(label.startswith("sentence 2 = Breakfast") for label in labels(plt.gcf().axes[0]))


def test_texts_of_different_lengths_are_rows_of_different_lengths():
    texts = ["A great view. Bad food.", "Great!", "Not great."]
    several = [showcases.explain_text(text, budget=30) for text in texts]
    theirs = c2fa.to_shap(several)
    assert theirs.shape == (3, None)
    for i, e in enumerate(several):
        np.testing.assert_array_equal(theirs[i].values, e.low)
        np.testing.assert_array_equal(theirs[i].error_std, e.stderr[-1])
        assert "".join(theirs[i].data) == texts[i]
        assert theirs[i].base_values == e.intercepts[-1]
    page = shap.plots.text(theirs, display=False)
    assert all(f"[{i}]" in page for i in range(3))
    assert "Great!" in page


def test_texts_of_one_length_are_not_taken_for_a_table():
    several = [showcases.explain_text(text, budget=30) for text in ("A great view.", "A bad meal.")]
    theirs = c2fa.to_shap(several)
    assert theirs.feature_names == [list(e.names[-1]) for e in several]
    mean = theirs.mean(0)
    named = dict(zip(mean.feature_names, mean.values, strict=True))
    assert named["A"] == pytest.approx(np.mean([e.low[0] for e in several]))
    assert named["great"] == several[0].low[1]
    shap.plots.bar(mean, show=False)


# -- images ------------------------------------------------------------------------------------------


def test_super_pixels_and_whole_images_are_bars():
    e = showcases.explain_images()
    theirs = e.to_shap()
    assert theirs.data is None
    np.testing.assert_array_equal(theirs.values, e.low)
    shap.plots.bar(theirs, show=False)
    shap.plots.bar(e.to_shap(level=0), show=False)
    assert sorted(labels(plt.gca())) == sorted(e.names[0])


# -- what does not fit -------------------------------------------------------------------------------


def test_what_does_not_belong_into_one_picture_is_refused():
    e = showcases.explain_text("A great view.", budget=30, outputs="all")
    with pytest.raises(ValueError, match=r"different outputs \(negative, positive\).*for_target\('negative'\)"):
        c2fa.to_shap([e, e.for_target("negative")])
    with pytest.raises(ValueError, match=r"different kinds of input \(no view, text\).*views='all'"):
        c2fa.to_shap([e, replace(e, view=c2fa.views.View())])
    with pytest.raises(ValueError, match=r"different scales \(identity, logit\)"):
        c2fa.to_shap([e, replace(e, provenance={**e.provenance, "link": "logit"})])
    with pytest.raises(ValueError, match="give at least one"):
        c2fa.to_shap([])
    with pytest.raises(
        TypeError, match=r"takes a list of explanations, not .*; for a single one, call its own to_shap\(\)"
    ):
        c2fa.to_shap(e)
    with pytest.raises(TypeError, match=r"takes a list of explanations, not \['text'\]"):
        c2fa.to_shap(["text"])
    with pytest.raises(IndexError, match="level 5"):
        e.to_shap(5)


def test_inputs_with_other_features_are_rows_of_their_own():
    bags = [showcases.explain_images((0, 1)), showcases.explain_images((0, 1, 2))]
    theirs = c2fa.to_shap(bags, level=0)
    assert theirs.shape == (2, None)
    assert theirs[1].feature_names == list(bags[1].names[0])
    shap.plots.waterfall(theirs[1], show=False)


def test_without_a_view_there_are_names_and_values():
    e = replace(showcases.explain_table(), view=c2fa.views.View())
    theirs = e.to_shap()
    assert theirs.data is None
    shap.plots.waterfall(theirs, show=False)
    assert "salary" in labels(plt.gcf().axes[0])


def test_a_store_of_explanations_is_taken_as_it_is(tmp_path):
    pytest.importorskip("pyarrow", reason="stores are Parquet files")
    masker = c2fa.maskers.Tabular(background=[[1.0, 1.0, 100.0]], names=MEASURES)
    explainer = c2fa.Explainer(lambda x: x[:, 0] - x[:, 2], masker, budget=30, output_names=["quality"])
    store = explainer.many(list(ROWS), tmp_path / "store", progress=False)
    theirs = c2fa.to_shap(store)
    np.testing.assert_array_equal(theirs.data, ROWS)
    np.testing.assert_array_equal(theirs.values, [e.low for e in store])


def test_features_of_one_name_stay_apart():
    e = showcases.explain_array(["a", "a", "b"], names=["x", "x", "y"])
    assert e.to_shap().feature_names == ["x", "x", "y"]
    assert c2fa.to_shap([e, e]).values.shape == (2, 3)
    shap.plots.waterfall(e.to_shap(), show=False)
