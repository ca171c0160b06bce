"""Figures in notebooks: shown once where they are the value of a cell, with %matplotlib inline and without it."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest

import c2fa
import showcases

pytest.importorskip("matplotlib", reason="figures need it")

EXPLAIN = """
import numpy as np, c2fa
masker = c2fa.maskers.Array(c2fa.Structure.from_groups("aabb"))
e = c2fa.Explainer(lambda b: b @ np.arange(4.0), masker, budget=20, progress=False)(np.ones(4))
"""


def test_a_figure_is_a_picture_without_pyplot():
    from PIL import Image

    shown = Image.open(BytesIO(showcases.explain_table().plot()._repr_png_()))
    assert shown.format == "PNG"
    assert np.ptp(np.asarray(shown)) > 0


def test_comparisons_are_shown_too():
    pytest.importorskip("pandas", reason="evaluate makes a frame")
    masker = c2fa.maskers.Array(c2fa.Structure.from_groups("aabb"))
    result = c2fa.evaluate(
        ["c2fa", "lime"], [np.ones(4)], lambda b: b @ np.arange(4.0), masker, masks=[(4, 8)], metrics=["deletion"]
    )
    assert result.plot("deletion")._repr_png_().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def shown():
    """How many pictures each cell shows, in the notebook that is run."""
    for module in ("nbclient", "ipykernel", "matplotlib_inline"):
        pytest.importorskip(module, reason="notebooks are run with it")
    import nbformat
    from nbclient import NotebookClient

    cells = {
        "value": "e.plot()",
        "named": "fig = e.plot()",
        "name": "fig",
        "quiet": "e.plot();",
        "unloaded": "import sys\nassert 'matplotlib.pyplot' not in sys.modules",
        "inline": "%matplotlib inline",
        "value inline": "e.plot()",
        "named inline": "fig = e.plot()",
        "name inline": "fig",
        "axes": "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\ne.plot(ax=ax);",
        "after axes": "e.plot()",
    }
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in (EXPLAIN, *cells.values())])
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    pictures = [sum("image/png" in output.get("data", {}) for output in cell.outputs) for cell in notebook.cells]
    return dict(zip(cells, pictures[1:], strict=True))


@pytest.mark.parametrize("cell", ["value", "name", "value inline", "name inline", "axes", "after axes"])
def test_a_figure_is_shown_once(shown, cell):
    assert shown[cell] == 1


@pytest.mark.parametrize("cell", ["named", "quiet", "unloaded", "inline", "named inline"])
def test_a_figure_that_is_no_value_is_not_shown(shown, cell):
    assert shown[cell] == 0
