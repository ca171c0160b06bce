"""Notebooks: figures are shown once, progress where it takes long, many explanations as a table."""

from __future__ import annotations

import re
import tempfile
from importlib.util import find_spec

import numpy as np
import pytest

import c2fa
import showcases

pytest.importorskip("matplotlib", reason="figures need it")

EXPLAIN = """
import numpy as np, c2fa
masker = c2fa.maskers.Array(c2fa.Structure.from_groups("aabb"))
explainer = c2fa.Explainer(lambda b: b @ np.arange(4.0), masker, budget=20)
e = explainer(np.ones(4))

def slow_model(batch):
    import time
    time.sleep(0.4)
    return batch.sum(axis=1)

slow = c2fa.Explainer(slow_model, masker, budget=20, batch_size=4)

class SlowReader:
    def pieces(self, answer):
        return [answer]

    def score(self, prompts, answer):
        import time
        time.sleep(0.4)
        return [[-1.0 if "sky" in prompt else -5.0] for prompt in prompts]
"""


@pytest.fixture(scope="module")
def cells():
    """What each cell of a notebook leaves, by the cell's name."""
    for module in ("nbclient", "ipykernel", "matplotlib_inline"):
        pytest.importorskip(module, reason="notebooks are run with it")
    import nbformat
    from nbclient import NotebookClient

    cells = {
        "explain": EXPLAIN,
        "the value of a cell": "e.plot()",
        "with a semicolon": "e.plot();",
        "in the middle of a cell": "fig = e.plot()\nfig.suptitle('named')\nNone",
        "a figure of an earlier cell": "fig",
        "with plt.show()": "import matplotlib.pyplot as plt\ne.plot()\nplt.show()",
        "on given axes": "fig, ax = plt.subplots()\ne.plot(ax=ax)",
        "on given axes with a semicolon": "fig, ax = plt.subplots()\ne.plot(ax=ax);",
        "on given axes with plt.show()": "fig, ax = plt.subplots()\ne.plot(ax=ax)\nplt.show()",
        "inline": "%matplotlib inline",
        "the value of a cell, inline": "e.plot()",
        "in a loop": "for _ in range(25):\n    e.plot()",
        "a page": "e.to_html('page.html')",
        "many": "found = explainer.many(np.eye(4)); found",
        "slow": "slow(np.ones(4)).base",
        "slow and silent": "slow.progress = False\nslow(np.ones(4)).base",
        "slow, many": "slow.progress = None\nslow.many(np.eye(4)[:2])[0].base",
        "slow, cite": "c2fa.cite(SlowReader(), ['The sky. So.', 'No.'], 'What?', 'Blue.', budget=7, batch_size=1).base",
        "live": "explainer.live(np.ones(4))" if find_spec("anywidget") else "",
    }
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells.values()])
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    return dict(zip(cells, [cell.outputs for cell in notebook.cells], strict=True))


ONCE = (
    "the value of a cell",
    "with a semicolon",
    "in the middle of a cell",
    "a figure of an earlier cell",
    "with plt.show()",
    "on given axes",
    "on given axes with a semicolon",
    "on given axes with plt.show()",
    "the value of a cell, inline",
)


@pytest.mark.parametrize("cell", ONCE)
def test_a_figure_is_shown_once(cells, cell):
    assert ["image/png" in output.get("data", {}) for output in cells[cell]] == [True]


def test_figures_of_a_loop_are_all_shown(cells):
    assert ["image/png" in output.get("data", {}) for output in cells["in a loop"]] == [True] * 25


def test_a_page_that_was_written_is_not_printed(cells):
    assert cells["a page"] == []


def test_many_explanations_are_a_table(cells):
    [output] = cells["many"]
    page = output["data"]["text/html"]
    assert page.count("<tr>") == 5
    assert "Explanations of 4 inputs" in page
    assert "output: 3" in page
    assert "<code>+3.000</code> b" in page


@pytest.mark.parametrize(
    ("cell", "doing"), [("slow", "asking the model"), ("slow, many", "explaining"), ("slow, cite", "asking the model")]
)
def test_work_of_over_a_second_shows_its_progress(cells, cell, doing):
    assert doing in str(cells[cell])
    assert re.search(r"\d+/\d+", str(cells[cell]))


def test_a_live_page_is_kept_as_a_static_one_when_the_notebook_is_saved(cells):
    pytest.importorskip("anywidget")
    [output] = cells["live"]
    assert "application/vnd.jupyter.widget-view+json" in output["data"]
    assert "bootIsland(" in output["data"]["text/html"]


def test_progress_false_is_silent(cells):
    assert [output["output_type"] for output in cells["slow and silent"]] == ["execute_result"]


def test_a_page_is_returned_where_no_file_is_named(tmp_path):
    e = showcases.explain_table()
    assert e.to_html(tmp_path / "page.html", title="A row") is None
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == e.to_html(title="A row")


def test_inputs_that_failed_stand_in_the_table_as_text():
    def model(batch):
        if (batch < 0).any():
            raise ValueError("<b>negative</b>")
        return batch.sum(axis=1)

    masker = c2fa.maskers.Array(c2fa.Structure.from_groups("aabb"))
    with pytest.warns(UserWarning, match="1 of 2"):
        found = c2fa.Explainer(model, masker, budget=20).many([np.ones(4), -np.ones(4)])
    page = found._repr_html_()
    assert ">input</th>" not in page  # vectors have no titles
    assert "could not be explained" in page
    assert "&lt;b&gt;negative" in page
    assert "<b>" not in page


def test_a_figure_is_apart_from_pyplot_where_nobody_shows_it():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before = pyplot.get_fignums()
    showcases.explain_table().plot()
    assert pyplot.get_fignums() == before
