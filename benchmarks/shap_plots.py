"""Make the pictures of docs/shap.md: ``python benchmarks/shap_plots.py FOLDER``.

Needs the extras peers, tabular, images and plots, and for the text, which shap draws as HTML, Debian's chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import shap
from PIL import Image, ImageChops
from sklearn.datasets import load_diabetes
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.model_selection import train_test_split

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import c2fa
import text as review

BLOOD = {"s1": "cholesterol", "s2": "LDL", "s3": "HDL", "s4": "ratio", "s5": "triglycerides", "s6": "sugar"}
GROUPS = {"person": ["age", "sex"], "body": ["bmi", "bp"], "blood": list(BLOOD.values())}
_FLAGS = "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --window-size=900,420"


def explain_patients(count: int = 60) -> list[c2fa.Explanation]:
    """How far diabetes will progress, for patients that the model was not trained on."""
    data = load_diabetes(as_frame=True, scaled=False)
    rows = data.data.rename(columns=BLOOD)
    train, test, known, _ = train_test_split(rows, data.target, random_state=0)
    model = GradientBoostingRegressor(random_state=0).fit(train, known)
    masker = c2fa.maskers.Tabular(GROUPS, background=train)
    explainer = c2fa.Explainer(model, masker, budget=80, output_names=["progression"])
    return [explainer(test.iloc[[i]]) for i in range(count)]


def explain_review() -> c2fa.Explanation:
    """The review of examples/text.py."""
    return c2fa.Explainer(c2fa.models.DemoSentiment(), c2fa.maskers.Text(), budget=200)(review.REVIEW)


def draw_tables(folder: Path) -> None:
    patients = explain_patients()
    one, many = patients[3].to_shap(), c2fa.to_shap(patients)
    for name, plot, given in (
        ("bar", shap.plots.bar, many),
        ("waterfall", shap.plots.waterfall, one),
        ("beeswarm", shap.plots.beeswarm, many),
    ):
        plt.figure()
        np.random.seed(0)  # noqa: NPY002  # shap's beeswarm draws its points in the order that this generator says
        plot(given, show=False)
        _save(folder / f"shap-{name}.png")


def draw_text(folder: Path) -> None:
    with np.printoptions(legacy="1.21"):  # shap writes colours as numpy prints them, and browsers read 0.5 only
        drawn = shap.plots.text(explain_review().to_shap(), display=False)
    page = f"<!DOCTYPE html><meta charset='utf-8'>{drawn}"
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "text.html"
        path.write_text(page, encoding="utf-8")
        picture = folder / "shap-text.png"
        command: list[Any] = ["chromium", *_FLAGS.split(), f"--user-data-dir={place}/profile"]
        subprocess.run([*command, f"--screenshot={picture.resolve()}", path.as_uri()], check=True, capture_output=True)
    page_shown = Image.open(picture).convert("RGB")
    written = ImageChops.invert(page_shown).getbbox()  # the window is taller than the text
    page_shown.crop((0, 0, page_shown.width, written[3] + 12)).save(picture)
    print(picture.name)


def _save(path: Path) -> None:
    plt.savefig(path, dpi=80, bbox_inches="tight")
    plt.close("all")
    print(path.name)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    draw_tables(folder)
    if shutil.which("chromium"):
        draw_text(folder)
    else:
        print("no browser: apt-get install chromium", file=sys.stderr)


if __name__ == "__main__":
    main()
