"""Commands run in this process, with standard error apart from standard output, and a file for them to read."""

from __future__ import annotations

from inspect import signature

from typer.testing import CliRunner

# Before version 8.2, click joins the two unless it is told not to.
RUNNER = CliRunner(mix_stderr=False) if "mix_stderr" in signature(CliRunner).parameters else CliRunner()


def pdf(*pages: str) -> bytes:
    """A PDF file with a line of text on each page."""
    kids = " ".join(f"{4 + 2 * k} 0 R" for k in range(len(pages)))
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for k, text in enumerate(pages):
        drawn = f"BT /F 12 Tf 10 100 Td ({text}) Tj ET"
        box = f"/Contents {5 + 2 * k} 0 R/Resources<</Font<</F 3 0 R>>>>/MediaBox[0 0 200 200]"
        objects += [f"<</Type/Page/Parent 2 0 R{box}>>", f"<</Length {len(drawn)}>>stream\n{drawn}\nendstream"]
    text, places = "%PDF-1.4\n", []
    for k, one in enumerate(objects, start=1):
        places.append(len(text))
        text += f"{k} 0 obj{one}endobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    head = f"xref\n0 {size}\n0000000000 65535 f \n{table}"
    return f"{text}{head}trailer<</Size {size}/Root 1 0 R>>\nstartxref\n{len(text)}\n%%EOF".encode()
