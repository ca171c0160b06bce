"""An answer: which sentence of which document made a language model say it

Each statement of the answer stands over the sentences that it rests on, and one of them rests on nothing. The model is
a stand-in that finds a word likelier where its prompt holds it; `c2fa.models.CausalLM` or a server takes its place.

Needs: pip install 'c2fa[plots]'
"""

import sys
from pathlib import Path

import c2fa

DOCUMENTS = {
    "rivers": "The Rhine flows through Basel. It is long. Swans like it.",
    "cities": "Basel has a port. Bern is the capital of Switzerland. Bern has bears.",
}


class Reader:
    """Stands for a language model: a word is likelier where the prompt holds it."""

    def generate(self, prompt):
        return "Bern is the capital of Switzerland. The Rhine flows through Basel. Zermatt bans cars."

    def pieces(self, answer):
        return answer.replace(" ", "| ").split("|")

    def score(self, prompts, answer):
        return [[-0.2 if piece.strip(" .") in prompt else -3.0 for piece in self.pieces(answer)] for prompt in prompts]


def main(folder: Path) -> None:
    answer = c2fa.cite(Reader(), DOCUMENTS, "What is the capital, and which river flows where?", budget=48)
    print(answer)
    answer.to_html(folder / "citing.html")
    answer.plot("nested").savefig(folder / "citing.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
