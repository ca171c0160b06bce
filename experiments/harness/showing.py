"""Examples for the figures: the first test inputs, explained once more and kept with what is drawn of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from c2fa import Explanation
from experiments.harness import settings
from experiments.harness.examples import Example, Values, load_examples, save_example
from experiments.harness.items import Item
from experiments.harness.reproduce import Domain, chosen_before

METHODS = ("C2FA", "LIME", "C2FA intercept")
"""What an example shows, unless told: the paper's method, the one it is compared to, and ours."""
COUNT, N_L = 3, 50

Describe = Callable[[str, Item, Values, Explanation, tuple[int, int]], Example]
"""An example of a name, an item, its attributions, one of its explanations (for the prediction) and the budget."""


def keep_examples(
    domain: Domain,
    folder: Path,
    describe: Describe,
    *,
    methods: Sequence[str] = METHODS,
    count: int = COUNT,
    n_l: int = N_L,
) -> list[str]:
    """Explain the first test inputs, with the strengths that the run chose, and add them to its folder.

    The inputs are taken by number, not by looks, and are called by it. One that the folder has with the same methods
    and budget is not explained again.

    Returns
    -------
    list of str
        The names of the examples that were made.
    """
    strengths = chosen_before(folder)
    labels = [label for label in methods if settings.TUNED_AS.get(label, label) in strengths]
    budget = (domain.many, n_l)
    there = {one.name for one in load_examples(folder) if one.budget == budget and list(one.values) == labels}
    made = []
    for number, item in enumerate(domain.test[:count]):
        if str(number) in there or not labels:
            continue
        explained = {}
        for label in labels:
            method = settings.method(label, strengths[settings.TUNED_AS.get(label, label)])
            explained[label] = domain.explainer(method, n_l)(item)
        values = {label: (e.high, e.low) for label, e in explained.items()}
        save_example(folder, describe(str(number), item, values, explained[labels[0]], budget))
        made.append(str(number))
    return made
