"""A real browser for the tests of the report: opened once, watched for requests and complaints."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("selenium", reason="selenium is not installed: pip install selenium")
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

__all__ = ["ActionChains", "By", "Keys"]

Browser = webdriver.Chrome
Open = Callable[..., None]
PARTS = "[aria-level='1'] > .row"
_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1280,900"
)


@contextmanager
def browser() -> Iterator[Browser]:
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("no browser: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in _FLAGS.split():
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(chromedriver))
    try:
        yield made
    finally:
        made.quit()


@contextmanager
def watched(driver: Browser, folder: Path) -> Iterator[Open]:
    """A function that opens a page; at the end nothing may have been fetched or complained about."""

    def show(page: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        path = folder / "page.html"
        path.write_text(page, encoding="utf-8")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        driver.get(path.as_uri())

    driver.get_log("performance")
    driver.get_log("browser")
    yield show
    assert driver.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    fetched = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert fetched
    assert [url for url in fetched if not url.startswith(("file:", "data:", "about:"))] == []


def all_of(driver: Browser, css: str) -> list[Any]:
    return driver.find_elements(By.CSS_SELECTOR, css)


def one(driver: Browser, css: str) -> Any:
    return driver.find_element(By.CSS_SELECTOR, css)


def texts(driver: Browser, css: str) -> list[str]:
    script = "return Array.from(document.querySelectorAll(arguments[0]), e => e.textContent)"
    return driver.execute_script(script, css)  # type: ignore[no-any-return]


def hover(driver: Browser, element: Any) -> None:
    ActionChains(driver, duration=20).move_to_element(element).perform()


def until(found: Callable[[], bool], seconds: float = 3.0) -> bool:
    """Wait for what the browser does in its own time."""
    end = time.monotonic() + seconds
    while not found() and time.monotonic() < end:
        time.sleep(0.02)
    return found()


def press(driver: Browser, *keys: str) -> None:
    ActionChains(driver, duration=20).send_keys(*keys).perform()


def slide(driver: Browser, position: int) -> None:
    driver.execute_script(
        "const r = document.querySelector('input[type=range]'); r.value = arguments[0];"
        "r.dispatchEvent(new Event('input', {bubbles: true}))",
        position,
    )


def choose(driver: Browser, text: str) -> None:
    label = next(label for label in all_of(driver, ".segments label") if label.text == text)
    label.click()
