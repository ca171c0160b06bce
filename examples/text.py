"""A review: sentences and their words

The sentiment classifier that comes with the package calls this review negative, although three of its four sentences
are friendly. The sentences show which one decides, the words why; each sentence's bar is the sum of its words.

Needs: pip install 'c2fa[plots]'
"""

import sys
from pathlib import Path

import c2fa

REVIEW = (
    "The room was bright and the bed was wonderful. Breakfast, however, was a disappointment: cold eggs, weak coffee "
    "and a long queue. The staff were friendly and found us a great restaurant. I would stay here again, because the "
    "view over the harbour is excellent!"
)


def main(folder: Path) -> None:
    explainer = c2fa.Explainer(c2fa.models.DemoSentiment(), c2fa.maskers.Text(), budget=200)
    explanation = explainer(REVIEW)
    print(explanation)
    explanation.plot().savefig(folder / "text.png", dpi=110)
    explanation.to_html(folder / "text.html")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
