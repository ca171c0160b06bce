"""The page that answers back, in a real browser: on a page that stands for a notebook, and in a real JupyterLab."""

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

import pytest

pytest.importorskip("anywidget", reason="anywidget is not installed: pip install 'c2fa[live]'")

import c2fa
import showcases
from browsing import ActionChains, Keys, browser, until
from c2fa.report._page import embed

pytestmark = pytest.mark.slow

REVIEW = "A great book. The end was bad."
EXPLAIN = f"""import c2fa
model = c2fa.models.DemoSentiment()
live = c2fa.Explainer(model, budget=40, target="positive").live({REVIEW!r})
live"""


HOST = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A notebook</title>
<meta name="viewport" content="width=device-width"></head>
<body style="margin:8px"><main><h1>A notebook</h1><div id="cell"></div></main>
<script type="module">
const state = __STATE__;
const heard = {};
window.sent = [];
window.receive = (changes) => {
  Object.assign(state, changes);
  for (const name of Object.keys(changes)) for (const listener of heard[`change:${name}`] || []) listener();
};
const model = {
  get: (name) => state[name],
  set: (name, value) => { state[name] = value; window.sent.push({ set: name, value }); },
  on: (event, listener) => { (heard[event] ||= []).push(listener); },
  save_changes: () => {},
  send: (message) => window.sent.push(message),
};
__SCRIPT__
widget.render({ model, el: document.getElementById("cell") });
</script></body></html>"""


class Notebook:
    """A page that holds the widget, in the place of a notebook's front end; its messages are carried by hand."""

    def __init__(self, driver: Any, show: Any, live: Any, **options: Any) -> None:
        self.driver, self.live = driver, live
        script = live._esm.replace("export default {", "const widget = {")
        self.names = ("style_sheet", "block", "parts", "off", "answer")
        state = {name: getattr(live, name) for name in self.names}
        show(HOST.replace("__STATE__", embed(state)).replace("__SCRIPT__", str(script)), **options)
        assert until(lambda: bool(self.see("return root && root.querySelector('.live')")))

    def see(self, script: str) -> Any:
        within = (
            "const root = document.querySelector('#cell > div') && document.querySelector('#cell > div').shadowRoot;"
        )
        return self.driver.execute_script(f"{within} {script}")

    def carry(self) -> None:
        """What the page sent goes to the kernel, and what changed there comes back."""
        assert until(lambda: bool(self.driver.execute_script("return window.sent.length")))
        for message in self.driver.execute_script("return window.sent.splice(0)"):
            if "set" in message:
                setattr(self.live, message["set"], message["value"])
            else:
                self.live._do(message)
        changes = {name: getattr(self.live, name) for name in self.names}
        self.driver.execute_script("window.receive(arguments[0])", changes)

    @property
    def told(self) -> str:
        return str(self.see("return root.querySelector('.live-answer').textContent"))

    @property
    def spent(self) -> str:
        return str(self.see("return root.querySelector('.live-spent').textContent"))

    def press(self, text: str) -> None:
        self.see(f"[...root.querySelectorAll('.live .button')].find((b) => b.textContent === '{text}').focus()")
        ActionChains(self.driver).send_keys(Keys.ENTER).perform()


def test_the_page_is_used_by_the_keyboard(driver: Any, show: Any) -> None:
    live = showcases.live_vector()
    page = Notebook(driver, show, live)
    assert page.told.startswith("Switch anything off")
    assert re.fullmatch(r"1\d of 1\d rows asked, cost [\d.]+", page.spent)
    page.see("root.querySelector('.live-parts > li input').focus()")
    ActionChains(driver).send_keys(Keys.SPACE).perform()
    assert page.told == "Asking the model …"
    page.carry()
    assert "with 3 off: the model says 15.000, the explanation predicted" in page.told
    page.press("+")
    page.see("root.querySelector('.live-leaves input').focus()")
    ActionChains(driver).send_keys(Keys.SPACE).perform()  # the first leaf is on again
    page.carry()
    assert live.off == [1, 2]
    assert page.see("return root.querySelector('.live-parts > li input').indeterminate")
    page.press("All on")
    page.carry()
    assert live.off == []
    page.see("root.querySelector('.live-rows').value = 40")
    page.press("Spend more rows")
    page.carry()
    assert live.explanation.queries > 12
    assert f"of {live.answer['budget']} rows asked" in page.spent
    live._explainer.model = lambda batch: 1 / 0
    page.press("Spend more rows")
    page.carry()
    assert page.told.startswith("QueryError: ZeroDivisionError")


def test_words_that_are_selected_in_the_answer_are_explained(driver: Any, show: Any) -> None:
    cited = showcases.live_answer()
    page = Notebook(driver, show, cited)
    before = page.spent
    page.see(
        "const text = root.querySelector('.statement span').firstChild; const range = document.createRange();"
        "range.setStart(text, 0); range.setEnd(text, 4); getSelection().removeAllRanges();"
        "getSelection().addRange(range); document.dispatchEvent(new Event('pointerup'))"
    )
    assert until(lambda: page.see("return root.querySelector('.live-words').value") == "Bern")
    page.press("Explain these words")
    page.carry()
    assert page.see("return root.querySelector('.live-span h3').textContent") == "What “Bern” rests on"
    assert "Bern is the capital." in page.see("return root.querySelector('.live-span li').textContent")
    assert page.spent == before
    page.see("root.querySelector('.live-words').value = 'elephants'; root.querySelector('.live-words').focus()")
    ActionChains(driver).send_keys(Keys.ENTER).perform()
    page.carry()
    assert "does not stand in the answer" in page.told


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_live_page_is_accessible_and_fits(driver: Any, show: Any, axe: str, width: int, dark: bool) -> None:
    cited = showcases.live_answer()
    page = Notebook(driver, show, cited, width=width, height=1000, dark=dark)
    page.press("+")
    cited.span("Bern")
    cited.off = [0]
    cited.span("Bern")
    driver.execute_script("window.receive(arguments[0])", {"off": cited.off, "answer": cited.answer})
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    driver.execute_script(axe)
    found = driver.execute_async_script("axe.run(document, {}).then(arguments[0])")
    assert [(v["id"], [n["html"][:100] for n in v["nodes"]]) for v in found["violations"]] == []
    # How much was asked is in sight wherever one is on the page.
    for place, block in ((".explanation", "start"), (".live", "start"), (".live-span", "end")):
        page.see(f"root.querySelector('{place}').scrollIntoView({{ block: '{block}' }})")
        box = page.see("const b = root.querySelector('.live-spent').getBoundingClientRect(); return [b.top, b.bottom]")
        assert 0 <= box[0] <= box[1] <= 1000
    folder = os.environ.get("C2FA_PICTURES")
    if folder:
        page.see("root.querySelector('.live').scrollIntoView()")
        driver.save_screenshot(str(Path(folder) / f"live-{width}-{'dark' if dark else 'light'}.png"))


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


def test_the_page_answers_back_in_jupyterlab(lab: str) -> None:
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
        see("[...root.querySelectorAll('.live .button')].find((b) => b.textContent === 'Spend more rows').click()")
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
