"""Any object: a nested record

A masker for anything is a structure and a function that masks. Here the input is an order with a customer, a payment
and items; what is masked is left out of the record, and the model, a scorecard written by hand, takes what is there.

Needs: pip install 'c2fa[plots]'
"""

import sys
from pathlib import Path

import numpy as np

import c2fa

ORDER = {
    "customer": {"age of account": 2, "orders before": 0, "country": "LV"},
    "payment": {"card country": "BR", "attempts": 4, "amount": 1900},
    "delivery": {"express": True, "address is new": True, "parcel shop": False},
}


def structure(record):
    return c2fa.Structure.from_tree({part: list(fields) for part, fields in record.items()})


def inputs(record, masks, level):
    """One record for each mask, without the fields that it hides."""
    fields = [(part, name, value) for part, inner in record.items() for name, value in inner.items()]
    return [
        {(part, name): value for (part, name, value), kept in zip(fields, row, strict=True) if kept}
        for row in structure(record).expand(masks, level)
    ]


def risk(records):
    """A scorecard: some fields add to the risk by themselves, two of them only together."""
    scores = []
    for r in records:
        score = -2.0 + 0.8 * (r.get(("customer", "orders before"), 5) == 0)
        score += 0.5 * (r.get(("payment", "attempts"), 1) - 1) + 0.4 * r.get(("delivery", "address is new"), False)
        score += 0.3 * r.get(("delivery", "express"), False) + 0.0004 * r.get(("payment", "amount"), 200)
        card, home = r.get(("payment", "card country")), r.get(("customer", "country"))
        score += 1.2 * (card is not None and home is not None and card != home)
        scores.append(1 / (1 + np.exp(-score)))
    return scores


def main(folder: Path) -> None:
    masker = c2fa.maskers.Custom(structure, inputs)
    explanation = c2fa.Explainer(risk, masker, budget=150, output_names=["fraud"])(ORDER)
    print(explanation)
    explanation.plot().savefig(folder / "custom.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
