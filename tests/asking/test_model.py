"""What a model says of itself, alone and behind the models that the package puts around it."""

from __future__ import annotations

import numpy as np
import pytest

from c2fa.asking.model import ModelProxy, describe
from c2fa.batch import Limited
from c2fa.batch.worker import ShardJournal, Watchdog
from c2fa.cli.session import Stop, Stoppable

ATTRIBUTES = ("name", "output_names", "cost", "notes", "batch_size", "chunk_size", "mask_token")


class Talkative:
    name, output_names, cost, notes = "m-1", ["bad", "good"], 0.5, ["one row was slow"]
    batch_size, mask_token = 12, "<mask>"

    def chunk_size(self):
        return 3

    def __call__(self, batch):
        return np.zeros((len(batch), 2))


def proxies(model, folder):
    return {
        "proxy": ModelProxy(model),
        "stoppable": Stoppable(model, Stop()),
        "limited": Limited(model, folder / "bucket", 1000.0),
        "watchdog": Watchdog(model, 60.0, ShardJournal(folder / "journal", "")),
    }


def test_a_model_is_described_by_what_it_has():
    told = describe(Talkative())
    assert [getattr(told, name) for name in ATTRIBUTES] == [
        "m-1", ("bad", "good"), 0.5, ("one row was slow",), 12, 3, "<mask>",
    ]  # fmt: skip


def test_a_plain_function_says_nothing():
    told = describe(lambda batch: batch)
    assert [getattr(told, name) for name in ATTRIBUTES] == [None, (), None, (), None, None, None]


def test_a_tokenizer_speaks_for_its_model():
    class Tokenized:
        class tokenizer:
            mask_token = "[M]"

    assert describe(Tokenized()).mask_token == "[M]"


@pytest.mark.parametrize("kind", ["proxy", "stoppable", "limited", "watchdog"])
def test_every_proxy_passes_on_all_of_it(kind, tmp_path):
    model = Talkative()
    told = describe(proxies(model, tmp_path)[kind])
    assert [getattr(told, name) for name in ATTRIBUTES] == [getattr(describe(model), name) for name in ATTRIBUTES]
    model.cost = 0.75
    assert told.cost == 0.75  # as it is now, not as it was when the model was wrapped


def test_what_a_model_does_not_have_its_proxy_does_not_have():
    with pytest.raises(AttributeError, match="'ModelProxy' object has no attribute 'weights'"):
        _ = ModelProxy(Talkative()).weights
