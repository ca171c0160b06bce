"""The picture of the first page: one review explained apart and together, as HTML that fits any screen and scheme."""

from __future__ import annotations

from html import escape

import c2fa

REVIEW = (
    "The room was bright and the bed was wonderful. Breakfast, however, was a disappointment: "
    "cold eggs, weak coffee and a long queue. The staff were friendly and found us a great "
    "restaurant. I would stay here again, because the view over the harbour is excellent!"
)
METHODS = {
    "lime": "Apart: LIME for sentences, LIME for words",
    "owen": "Together: c2fa",
}
PLACE = "<!-- before and after -->"
_LEAST, _MOST = -0.25, 0.75  # what the bars have room for


def figure() -> str:
    """Both methods beside each other, or one above the other where the screen is narrow."""
    model, masker = c2fa.models.DemoSentiment(), c2fa.maskers.Text()
    panels = []
    for method, title in METHODS.items():
        e = c2fa.Explainer(model, masker, method=method, budget=(10, 30))(REVIEW)
        sums = e.structure.sums(e.low, 0)
        rows = [_row(*row) for row in zip(e.names[0], e.high, sums, strict=True)]
        panels.append(f'<div class="panel"><p class="title">{title}</p>{"".join(rows)}</div>')
    return f'<div class="before-after">{"".join(panels)}</div>'


def _row(sentence: str, own: float, words: float) -> str:
    agree = round(own, 2) == round(words, 2)
    verdict = "they agree" if agree else f"they differ by {abs(own - words):.2f}"
    if own * words < 0:
        verdict += ", and in sign"
    return (
        f'<div class="row{"" if agree else " apart"}"><p class="name">{escape(sentence)}</p>'
        f'{_bar("sentence", own)}{_bar("its words", words)}<p class="verdict">{verdict}</p></div>'
    )


def _bar(label: str, value: float) -> str:
    start, end = sorted((_share(0.0), _share(value)))
    side = "for" if value > 0 else "against"
    return (
        f'<div class="line"><span class="label">{label}</span><span class="track">'
        f'<span class="bar {side}" style="left:{start:.1%};width:{end - start:.1%}"></span></span>'
        f'<span class="value">{value:+.2f}</span></div>'.replace("-0.", "−0.")
    )


def _share(value: float) -> float:
    if not _LEAST <= value <= _MOST:
        raise ValueError(f"the picture has no room for {value:.2f}: widen it")
    return (value - _LEAST) / (_MOST - _LEAST)
