"""Make every plot and screenshots of the report and the site: ``python benchmarks/screenshots.py FOLDER [WHAT ...]``.

WHAT is plots, reports or site; all three if nothing is said. Screenshots need Debian's chromium and chromium-driver,
and selenium; without them only the plots are made. Those of the site need what ``make docs`` makes.
"""

from __future__ import annotations

import base64
import functools
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import showcases
import test_plots
from c2fa import plots, report

_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars"
)


def draw_plots(folder: Path) -> None:
    extra: dict[str, Callable[[], Any]] = {
        "nested-real": lambda: plots.nested(showcases.explain_text()),
        "text-real": lambda: plots.text(showcases.explain_text()),
        "compare-real": lambda: plots.compare(test_plots.explanations_of_two_methods(), leaves=2),
        "words-alone": test_plots.CROWDED["text: words alone"],
        "passage": lambda: plots.text(showcases.explain_text(), bars=False),
        "hebrew": lambda: plots.text(showcases.explain_hebrew()),
        "long-text": lambda: plots.text(showcases.explain_text(showcases.long_text(500))),
        "crowd": lambda: plots.nested(test_plots.crowd()),
        "zero": lambda: plots.nested(test_plots.crowd(zero=True)),
        "flat": test_plots.CROWDED["nested: flat"],
        "many-images": test_plots.CROWDED["images: 20"],
        "two-methods-images": lambda: plots.images(
            {"200 rows": showcases.explain_images(), "60 rows": showcases.explain_images(budget=(15, 45))},
            threshold=0.05,
            positive=2,
        ),
    }
    for name, make in {**test_plots.PICTURES, **extra}.items():
        make().savefig(folder / f"plot-{name}.png", dpi=100)
        print(f"plot-{name}.png")


# The pages of the site that are photographed, each from an anchor on.
_PAGES = {
    "index": "",
    "getting-started": "getting-started/",
    "tutorial": "tutorial/#one-prediction",
    "choosing": "choosing/",
    "comparing": "comparing/#side-by-side",
    "tables": "tables/#table-rows",
    "how-it-works": "how-it-works/#smoothness",
    "gallery": "gallery/",
    "gallery-images": "gallery/#a-bag-of-images-which-image-and-where-in-it",
    "notebook": "notebooks/text/#explain-it",
    "notebook-table": "notebooks/table/#as-a-table",
    "reference": "api/",
    "changelog": "changelog/",
}


class Camera:
    """A browser without a window."""

    def __init__(self, folder: Path) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or "chromium"
        for flag in _FLAGS.split():
            options.add_argument(flag)
        self.folder = folder
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver") or "chromedriver"))

    def photograph(
        self, name: str, address: str, *, width: int = 1280, height: int = 860, dark: bool = False, act: str = ""
    ) -> None:
        # A page that is open would remember the scheme that it sees change, for the next one.
        self.driver.get("about:blank")
        if address.startswith("http"):
            forget = {"origin": address, "storageTypes": "local_storage"}
            self.driver.execute_cdp_cmd("Storage.clearDataForOrigin", forget)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get(address)
        time.sleep(0.3)
        if act:
            self.driver.execute_script(act)
            time.sleep(0.2)
        self.driver.save_screenshot(str(self.folder / f"{name}.png"))
        print(f"{name}.png")


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """A folder at an address of this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def photograph_site(folder: Path) -> None:
    """Every page in ``_PAGES`` on a desktop and a phone, light and dark; says which is wider than its screen."""
    site = Path(__file__).parents[1] / "site"
    if not (site / "index.html").exists():
        raise SystemExit("there is no site yet: make docs")
    camera = Camera(folder)
    wider = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    try:
        with _served(site) as address:
            for name, page in _PAGES.items():
                for screen, (width, height) in {"desktop": (1280, 860), "phone": (390, 844)}.items():
                    for dark in (False, True):
                        camera.photograph(
                            f"site-{name}-{screen}{'-dark' if dark else ''}",
                            address + page,
                            width=width,
                            height=height,
                            dark=dark,
                        )
                        if (excess := camera.driver.execute_script(wider)) > 0:
                            print(f"{page or 'index'} is {excess} pixels wider than the {screen}", file=sys.stderr)
    finally:
        camera.driver.quit()


def photograph_reports(folder: Path) -> None:
    """The report, in all its moods."""
    camera = Camera(folder)
    driver = camera.driver

    def photograph(name: str, page: str, **options: Any) -> None:
        path = folder / f"{name}.html"
        path.write_text(page, encoding="utf-8")
        camera.photograph(name, path.as_uri(), **options)

    point = "document.querySelectorAll('{}')[{}].dispatchEvent(new PointerEvent('pointerover', {{bubbles: true}}));"
    review, bag = showcases.explain_text(), showcases.explain_images()
    page = report.html(review)
    try:
        photograph("report", page)
        photograph("report-dark", page, dark=True)
        photograph("report-part", page, act=point.format(".tree .row", 4))
        photograph("report-word", page, dark=True, act=point.format(".word", 14))
        photograph("report-sentences", page, act="document.querySelectorAll('.segments input')[4].click()")
        photograph("report-words", page, act="document.querySelectorAll('.segments input')[5].click()")
        photograph("report-table", page, height=1500, act="document.querySelector('.numbers summary').click()")
        photograph("report-phone", page, width=390, height=1500)
        photograph("report-phone-dark", page, width=390, height=844, dark=True, act="scrollTo(0, 900)")
        photograph("report-images", report.html(bag), act=point.format(".tree .row", 7))
        photograph("report-image", report.html(showcases.explain_image()), dark=True)
        photograph("report-series", report.html(showcases.explain_series()))
        photograph("report-series-dark", report.html(showcases.explain_series("windows")), dark=True)
        photograph("report-bag", report.html(showcases.explain_bag()))
        photograph(
            "report-deep", report.html(showcases.explain_deep()), act="document.querySelector('.tools button').click()"
        )
        photograph("report-zero", report.html(test_plots.crowd(zero=True)))
        answer = report.html(showcases.explain_answer())
        photograph("report-answer", answer, height=1200)
        photograph("report-answer-dark", answer, dark=True, act="document.querySelector('button.statement').click()")
        photograph("report-answer-phone", answer, width=375, height=2200)
        photograph("report-hebrew", report.html(showcases.explain_hebrew()))
        photograph("report-hostile", report.html(showcases.explain_text(showcases.HOSTILE)))
        photograph("report-apart", report.html(test_plots.explanations_of_two_methods()["levels apart"]))
        photograph("report-long", report.html(showcases.explain_text(showcases.long_text(2000), budget=(60, 200))))
        many = [showcases.explain_text(showcases.long_text(60 + k, seed=k), budget=(12, 40)) for k in range(9)]
        gallery = report.html([review, bag, showcases.explain_table(), showcases.explain_series(), *many])
        photograph("gallery", gallery)
        photograph("gallery-dark", gallery, dark=True, act="document.querySelectorAll('.card-head')[1].click()")
        photograph("gallery-phone", gallery, width=390, height=844)
        notebook = f"<!DOCTYPE html><title>x</title><body style='font-family:serif'>{report.repr_html(review)}<br>"
        photograph("notebook", notebook + report.repr_html(showcases.explain_table()), height=1500)
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        plain = f"<!DOCTYPE html><title>x</title><body style='background:#222'>{report.repr_html(review)}<br>"
        photograph("notebook-plain", plain + report.repr_html(bag), height=700)
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        driver.get((folder / "report.html").as_uri())
        (folder / "report.pdf").write_bytes(base64.b64decode(driver.print_page()))
        print("report.pdf")
    finally:
        driver.quit()


def main() -> None:
    jobs = {"plots": draw_plots, "reports": photograph_reports, "site": photograph_site}
    what = sys.argv[2:] or list(jobs)
    if len(sys.argv) < 2 or not set(what) <= set(jobs):
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    browser = bool(shutil.which("chromium") and shutil.which("chromedriver"))
    for name in what:
        if name == "plots" or browser:
            jobs[name](folder)
        else:
            print(f"no browser for {name}: apt-get install chromium chromium-driver", file=sys.stderr)


if __name__ == "__main__":
    main()
