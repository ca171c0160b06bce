"""The page that answers back, in a real JupyterLab and a real browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("anywidget", reason="anywidget is not installed: pip install 'c2fa[live]'")

import c2fa

REVIEW = "A great book. The end was bad."
EXPLAIN = f"""import c2fa
model = c2fa.models.DemoSentiment()
live = c2fa.Explainer(model, budget=40, target="positive").live({REVIEW!r})
live"""


class Counting:
    """The sum of the entries; knows its rows and its cost."""

    output_names = ("sum",)

    def __init__(self) -> None:
        self.rows, self.cost = 0, 0.0

    def __call__(self, batch: Any) -> Any:
        self.rows += len(batch)
        self.cost += 0.5 * len(batch)
        return batch @ np.arange(1.0, 7.0) + 4.0 * batch[:, 0] * batch[:, 5]


@pytest.fixture
def live() -> Any:
    masker = c2fa.maskers.Array(c2fa.Structure.from_groups("aaabbb"))
    return c2fa.Explainer(Counting(), masker, budget=12).live(np.ones(6))


def test_switching_off_asks_one_row_and_compares(live: Any) -> None:
    model = live._explainer.model
    before = model.rows
    live.off = [0]
    assert live.answer["says"] == pytest.approx(20.0)
    assert live.answer["predicted"] == pytest.approx(live.explanation.base + live.explanation.low[1:].sum())
    assert model.rows - before <= 1
    assert live.answer["rows"] == model.rows
    assert live.answer["cost"] == pytest.approx(model.cost)
    asked = model.rows
    live.off = []
    live.off = [0]
    assert model.rows - asked <= 1  # what was asked once is known; the whole input was asked by the explanation


def test_more_rows_are_added_to_those_that_were_asked(live: Any) -> None:
    model = live._explainer.model
    live.more(60)
    assert live.explanation.queries <= 72
    assert model.rows <= 72
    assert live.answer["rows"] == model.rows
    np.testing.assert_allclose(live.explanation.low, [3.0, 2, 3, 4, 5, 8], atol=1e-6)


def test_a_part_can_be_looked_at_by_itself(live: Any) -> None:
    live.more(30, part=0)
    assert [name for name, _ in live.answer["part"]] == list(live.explanation.names[1][:3])
    assert [float(value) for _, value in live.answer["part"]] == pytest.approx([5.0, 2.0, 3.0])


def test_an_error_of_the_model_is_told_on_the_page(live: Any) -> None:
    live._explainer.model = lambda batch: 1 / 0
    live.off = [3]
    assert "ZeroDivisionError" in live.answer["error"]


def test_a_saved_notebook_keeps_the_page(live: Any) -> None:
    data, _ = live._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "bootIsland" in data["text/html"]


# -- in JupyterLab ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a notebook in a running JupyterLab."""
    pytest.importorskip("jupyterlab", reason="jupyterlab is not installed: pip install jupyterlab ipywidgets")
    nbformat = pytest.importorskip("nbformat")
    folder = tmp_path_factory.mktemp("lab")
    cell = nbformat.v4.new_code_cell(EXPLAIN)
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=kernel), folder / "live.ipynb")
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0"]
    command += ["--IdentityProvider.token=", "--ServerApp.password=", f"--ServerApp.root_dir={folder}"]
    environment = {**os.environ, "HOME": str(folder), "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
    log = folder / "log.txt"
    with log.open("w") as file:
        server = subprocess.Popen(command, stdout=file, stderr=file, env=environment, cwd=folder)
    try:
        address = None
        for _ in range(300):
            found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
            if found is not None:
                address = found[0]
                break
            assert server.poll() is None, log.read_text()
            time.sleep(0.2)
        assert address is not None, log.read_text()
        urllib.request.urlopen(f"{address}/api/status", timeout=30).close()
        yield f"{address}/doc/tree/live.ipynb"
    finally:
        server.kill()
        server.wait(30)


WITHIN = """
const host = [...document.querySelectorAll('.jp-OutputArea-output div')].find((d) => d.shadowRoot);
const root = host && host.shadowRoot;
"""


@pytest.mark.slow
def test_the_page_answers_back_in_jupyterlab(lab: str) -> None:
    from browsing import ActionChains, Keys, browser, until

    with browser() as driver:
        driver.get(lab)
        # The kernel is there: what is run before asks for one.
        idle = "return /ipykernel\\) *\\| *Idle/.test(document.body.textContent)"
        assert until(lambda: bool(driver.execute_script(idle)), 90)
        driver.execute_script("document.querySelector('.jp-Notebook .jp-CodeCell .cm-content').focus()")
        ActionChains(driver).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT).perform()

        def see(script: str) -> Any:
            return driver.execute_script(f"{WITHIN} {script}")

        assert until(lambda: bool(see("return root && root.querySelector('.live')")), 120)
        told = "return root.querySelector('.live-answer').textContent"
        assert see(told).startswith("Switch anything off")
        spent = int(re.search(r"\d+", see("return root.querySelector('.live-spent').textContent"))[0])  # type: ignore[index]
        see("root.querySelector('.live-parts > li input').focus()")
        ActionChains(driver).send_keys(Keys.SPACE).perform()  # by the keyboard
        assert until(lambda: "with 3 off: the model says" in see(told), 30), see(told)
        model = c2fa.models.DemoSentiment()
        says = float(model(["[MASK] [MASK] [MASK] The end was bad."])[0][1])
        assert f"the model says {says:.3f}" in see(told)
        see("[...root.querySelectorAll('.live .button')].find((b) => b.textContent === 'Spend').click()")
        assert until(lambda: see(told).startswith("Switch anything off"), 60)
        more = int(re.search(r"\d+", see("return root.querySelector('.live-spent').textContent"))[0])  # type: ignore[index]
        assert spent < more <= spent + 101
        assert see("return [...root.querySelectorAll('.live input[type=checkbox]')].every((box) => box.checked)")
        folder = os.environ.get("C2FA_PICTURES")
        if folder:
            for name, width, dark in (("wide", 1280, False), ("narrow", 390, False), ("dark", 1280, True)):
                size = {"width": width, "height": 1400, "deviceScaleFactor": 1, "mobile": False}
                driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
                see(f"root.querySelector('.c2fa-root').setAttribute('data-theme', '{'dark' if dark else 'light'}')")
                see("root.querySelector('.live').scrollIntoView()")
                time.sleep(0.5)
                driver.save_screenshot(str(Path(folder) / f"live-{name}.png"))
