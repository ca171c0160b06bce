"""Models of the tests of models that processes of their own have; importable, so that those processes find them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import c2fa
from batch_helpers import KILLS, LEAVES, STRUCTURE, Model
from c2fa.asking.masking import Masked, MaskedBatch
from c2fa.asking.model import charge

WORDS = "the film was good bad dull great but and not very plot . ,"
HEAVY = "wave"  # a module that nothing else imports: it stands for a large one


@dataclass(frozen=True, eq=False)
class Vector:
    """The rows of a vector under masks; it can travel."""

    x: npt.NDArray[np.float64]

    def __call__(self, masks: npt.NDArray[np.bool_], level: int) -> npt.NDArray[np.float64]:
        return np.ascontiguousarray(np.where(STRUCTURE.expand(masks, level), self.x, 0.0))


@dataclass(frozen=True)
class Vectors:
    """Masks vectors by 0; they travel to the model as they are unless ``local``."""

    local: bool = False

    def __call__(self, x: Any) -> Masked:
        rows: Callable[..., Any] = Vector(np.asarray(x))
        if self.local:
            return Masked(STRUCTURE, lambda masks, level: rows(masks, level))
        return Masked(STRUCTURE, rows)


@dataclass
class Renders(Model):
    """Masks vectors itself, begins a batch while another is under way, and says in a file when it is made.

    ``heavy`` imports a module of which workers are to know nothing; ``price`` is charged for each row; ``gpu`` is a
    file in which it says which GPU it may use.
    """

    made: str | None = None
    heavy: bool = False
    price: float = 0.0
    gpu: str | None = None

    def __post_init__(self) -> None:
        if self.heavy:
            __import__(HEAVY)
        if self.made is not None:
            append(self.made, f"{os.getpid()}")
        if self.gpu is not None:
            append(self.gpu, os.environ["CUDA_VISIBLE_DEVICES"])

    @property
    def cost(self) -> float | None:
        return None if not self.price else 0.0

    @staticmethod
    def encode_inputs(inputs: Any) -> Vector | None:
        return inputs if isinstance(inputs, Vector) else None

    def launch(self, batch: Any) -> Callable[[], npt.NDArray[np.float64]]:
        if isinstance(batch, MaskedBatch):
            batch = np.concatenate([piece.rendered() for piece in batch.pieces])

        def outputs() -> npt.NDArray[np.float64]:
            charge(self.price * len(batch))
            return Model.__call__(self, batch)

        return outputs

    def __call__(self, batch: Any) -> npt.NDArray[np.float64]:
        return self.launch(batch)()


class Refuses(Renders):
    """Cannot be made."""

    def __init__(self) -> None:
        raise ValueError("there are no weights here")


def dies() -> Model:
    os._exit(3)


def killer(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The same input, but it kills whoever asks about it."""
    assert len(x) == LEAVES
    return np.array([KILLS, *x[1:]])


class Watches(Vectors):
    """Says in a file whether the process that masks has loaded the heavy module, and which GPUs it may use."""

    def __init__(self, file: str) -> None:
        object.__setattr__(self, "local", False)
        object.__setattr__(self, "file", file)

    def __call__(self, x: Any) -> Masked:
        append(self.file, f"{os.getpid()} {HEAVY in sys.modules} [{os.environ['CUDA_VISIBLE_DEVICES']}]")  # type: ignore[attr-defined]
        return super().__call__(x)


def append(file: str, line: str) -> None:
    """Write a line in one go, so that several processes can."""
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def explainer(model: Any = None, local: bool = False, **options: Any) -> c2fa.Explainer:
    settings = {"budget": (8, 24), "progress": False, **options}
    return c2fa.Explainer(model or Renders(), Vectors(local), **settings)


def text_classifier() -> Any:
    """A real BERT, small and untrained, that masks texts as tokens."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    torch.set_num_threads(1)
    words = ["[PAD]", "[UNK]", "[MASK]", *WORDS.split()]
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    core.pre_tokenizer = BertPreTokenizer()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]"
    )
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=len(words), initializer_range=0.3, **sizes)
    return c2fa.models.HuggingFace(BertForSequenceClassification(config), tokenizer, batch=32)


TEXTS = [" ".join(np.random.default_rng(i).choice(WORDS.split(), 25)) for i in range(12)]
