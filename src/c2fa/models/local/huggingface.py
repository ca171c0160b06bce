"""A Hugging Face text-classification model with its tokenizer, or a pipeline of them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from c2fa._system import is_whole, on_device, refuse_older, without_plans
from c2fa.asking.masking import MaskedBatch
from c2fa.models.local._graphs import Graphs
from c2fa.models.local._tokens import Tokenize, TokenTable, token_rows
from c2fa.models.local.torch import (
    Background,
    Floats,
    autocast_dtype,
    device_of,
    evaluating,
    precision,
    restored,
    tensor_of,
    to_host,
    weights_hash,
)

LEAST_CUT = 256  # rows of a batch that is not cut any more: a GPU takes about as long for fewer


class Pretrained:
    """A model of ``transformers`` with its tokenizer, on a device."""

    takes: str  # the other things that may be given in place of a model
    batches: tuple[int, int]  # default rows of one call, on a CPU and on a GPU

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        device: str | torch.device | None,
        autocast: str | torch.dtype | None,
        batch: int | None,
    ) -> None:
        if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
            raise TypeError(f"model must be a transformers model, {self.takes}, not {type(model).__name__}")
        if tokenizer is None:
            raise ValueError(f"a model needs its tokenizer: {type(self).__name__}(model, tokenizer)")
        if batch is not None and batch < 1:
            raise ValueError(f"batch must be at least 1, not {batch}")
        self.model: Any = model if device is None else model.to(device)
        self.tokenizer = tokenizer
        self.device = torch.device(device) if device is not None else device_of(model)
        self.batch = batch or self.batches[self.device.type == "cuda"]
        self.autocast = autocast_dtype(autocast)
        self.__setstate__({})

    def __getstate__(self) -> dict[str, Any]:
        own = ("encode_inputs", "_graphs", "_tokenizing")  # made anew in each process
        return {name: value for name, value in vars(self).items() if name not in own}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._tokenizing = threading.Lock()  # a tokenizer may fail if two threads use it at once

    @property
    def batch_size(self) -> int:
        """How many rows to send at a time: several batches, so that rows of nearly the same length are found."""
        return 4 * self.batch

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.model).__name__}, device={str(self.device)!r})"

    def _named(self, kind: str, *how: Any) -> str:
        """The model's class with a hash of its weights, its vocabulary and how it is run."""
        options = (*how, sorted(self.tokenizer.get_vocab().items()))
        digest = hashlib.sha256(repr(options).encode()).hexdigest()[:16]
        return f"{kind}:{type(self.model).__name__}:{weights_hash(self.model)}:{digest}"


class HuggingFace(Pretrained):
    """A text classifier of ``transformers`` as a model: texts, or pairs of texts, in; probabilities out.

    Texts are batched by length and padded to the longest of their batch. Nothing is ever downloaded, and no code in a
    folder is ever run.

    Parameters
    ----------
    model
        A sequence-classification model, a text-classification pipeline, or a folder written by
        ``save_pretrained``.
    tokenizer
        The model's tokenizer; a pipeline or folder has its own.
    device, autocast
        As for `c2fa.models.Torch`.
    batch
        The most texts in one call of the model; by default 64, and 256 on a GPU, which is faster with thousands if its
        memory holds them.
    max_length
        The number of tokens after which a text is cut; the model's own limit unless given.
    outputs
        ``"probabilities"``, by the model's own problem type (softmax, or sigmoid where a text may have
        several labels, or the number itself for regression), or ``"logits"``.
    """

    takes = "pipeline or folder"
    batches = (64, 256)

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        device: str | torch.device | None = None,
        autocast: str | torch.dtype | None = None,
        batch: int | None = None,
        max_length: int | None = None,
        outputs: str = "probabilities",
    ) -> None:
        if isinstance(model, str | Path):
            model, tokenizer = from_folder(Path(model), tokenizer)
        elif not isinstance(model, torch.nn.Module) and hasattr(model, "model"):  # a pipeline
            model, tokenizer = model.model, tokenizer or model.tokenizer
        super().__init__(model, tokenizer, device, autocast, batch)
        if tokenizer.pad_token_id is None:
            raise ValueError(
                "the tokenizer has no padding token; set tokenizer.pad_token and model.config.pad_token_id"
            )
        if outputs not in ("probabilities", "logits"):
            raise ValueError(f"outputs must be 'probabilities' or 'logits', not {outputs!r}")
        around = 0 if max_length is None else tokenizer.num_special_tokens_to_add()
        if max_length is not None and not (is_whole(max_length) and max_length > around):
            raise ValueError(
                f"max_length must be a whole number above {around}, the tokens around a text; got {max_length!r}"
            )
        self.outputs = outputs
        self.max_length = max_length or _limit(tokenizer, model)
        self._background = Background(self.device)

    @property
    def output_names(self) -> tuple[str, ...]:
        labels = self.model.config.id2label or {}
        return tuple(str(labels[i]) for i in sorted(labels))

    @property
    def name(self) -> str:
        """The model's class with a hash of its weights, its vocabulary and how it is run."""
        return self._named("hf", self.outputs, self.max_length, str(self.autocast))

    @cached_property
    def encode_inputs(self) -> Tokenize | None:
        """Makes tokens of texts and pairs of texts, to be masked on the device; None where the tokenizer is slow."""
        return Tokenize.of(self.tokenizer, self.max_length) if self.tokenizer.is_fast else None

    @cached_property
    def _graphs(self) -> Graphs:
        return Graphs(lambda inputs: self._activated(tensor_of(self.model(**inputs)).float()))

    def steady(self) -> AbstractContextManager[None]:
        """A context in which nobody changes the network, so that a GPU can replay it for each shape of a batch."""
        return self._graphs.steady() if self.device.type == "cuda" else nullcontext()

    def __call__(self, batch: Any) -> Floats:
        return self.launch(batch)()

    def launch(self, batch: Any) -> Callable[[], Floats]:
        """Begin a batch of texts, or of masks of texts; the function that is returned waits for the outputs."""
        if len(batch) == 0:
            raise ValueError("the batch is empty; a text classifier needs at least one text")
        return self._background(self._launch, batch)

    def _launch(self, batch: Any) -> Callable[[], Floats]:
        if isinstance(batch, MaskedBatch):
            tables, masks = [rows.inputs for rows in batch.pieces], [rows.masks for rows in batch.pieces]
        else:
            tables = self._whole(list(batch))
            masks = [np.ones((1, 0), dtype=np.bool_)] * len(tables)
        lengths = np.concatenate(list(map(TokenTable.lengths, tables, masks)))
        order = np.argsort(-lengths, kind="stable")  # memory that suffices for the longest does for the others
        evaluating(self.model)
        with torch.inference_mode(), precision(self.device, self.autocast):
            width = self._width(int(lengths.max()))
            filler = {
                "input_ids": self.tokenizer.pad_token_id,
                "token_type_ids": self.tokenizer.pad_token_type_id,
            }
            columns = token_rows(tables, masks, width, filler, self._left, self.device)
            outputs = [self._outputs(columns, lengths, index) for index in self._batches(order)]
            answers = to_host(torch.cat(outputs))
        return lambda: restored(order, answers())

    def _batches(self, order: Any) -> Iterator[Any]:
        """Whole batches; where they are recorded, also halves of them and so on, as few shapes need few recordings."""
        size = self.batch
        while len(order):
            if self._graphs.records and len(order) < size and size > LEAST_CUT:
                size //= 2
                continue
            yield order[:size]
            order = order[size:]

    def _outputs(self, columns: Mapping[str, torch.Tensor], lengths: Any, index: Any) -> torch.Tensor:
        """The outputs of some rows, which are cut to the longest of them."""
        rows = len(index)
        if self._graphs.records:  # a rest is filled up by an eighth at most, also for the sake of few shapes
            step = 1 << max((rows - 1).bit_length() - 4, 0)
            index = np.pad(index, (0, -rows % step), mode="edge")
        own = lengths[index]
        width = self._width(int(own.max()))
        kept = slice(-width, None) if self._left else slice(width)
        at = on_device(index, self.device)
        inputs = {name: column[at][:, kept] for name, column in columns.items()}
        if "attention_mask" in self.tokenizer.model_input_names:
            place = torch.arange(width, device=self.device)
            size = on_device(own, self.device)[:, None]
            inputs["attention_mask"] = ((place >= width - size) if self._left else (place < size)).long()
        comes_often = self._graphs.records and rows in (self.batch, self.batch // 2)
        with nullcontext() if comes_often else without_plans:
            return self._graphs(inputs)[:rows]

    def _width(self, longest: int) -> int:
        """The width of a batch: on a GPU a multiple of 16, for which its kernels are faster."""
        if self.device.type != "cuda":
            return longest
        return min(-(-longest // 16) * 16, max(self.max_length or longest + 16, longest))

    @property
    def _left(self) -> bool:
        return bool(self.tokenizer.padding_side == "left")

    def _whole(self, rows: list[Any]) -> list[TokenTable]:
        """The tokens of whole texts, or pairs of texts."""
        pairs = [_pair(row) for row in rows]
        if len({second is None for _, second in pairs}) > 1:
            raise ValueError("a batch must be all texts or all pairs of texts, not a mixture")
        seconds = [second for _, second in pairs] if pairs[0][1] is not None else None
        with self._tokenizing:
            encoding = self.tokenizer(
                [first for first, _ in pairs], seconds, truncation=True, max_length=self.max_length, padding=False
            )
        return [TokenTable.whole(encoding, number) for number in range(len(rows))]

    def _activated(self, logits: torch.Tensor) -> torch.Tensor:
        problem = self.model.config.problem_type
        if self.outputs == "logits" or problem == "regression":
            return logits
        if problem == "multi_label_classification" or logits.shape[-1] == 1:
            return logits.sigmoid()
        return logits.softmax(dim=-1)


def _pair(row: Any) -> tuple[str, str | None]:
    if isinstance(row, str):
        return row, None
    if isinstance(row, Sequence | np.ndarray) and len(row) == 2 and all(isinstance(t, str) for t in row):
        return str(row[0]), str(row[1])
    raise TypeError(f"a text classifier takes texts or pairs of texts, not {type(row).__name__}")


def _limit(tokenizer: Any, model: torch.nn.Module) -> int | None:
    """Return the most tokens that the model reads; a tokenizer without a limit has a huge number."""
    limit = tokenizer.model_max_length
    if limit is not None and limit < 1_000_000:
        return int(limit)
    limit = setting(model.config, "max_position_embeddings")
    # RoBERTa and its kin number positions from that of padding on, whose embedding is for no token.
    tables = (part for name, part in model.named_modules() if name.endswith("position_embeddings"))
    unused = next((table.padding_idx + 1 for table in tables if getattr(table, "padding_idx", None) is not None), 0)
    return limit and int(limit) - unused


def setting(owner: Any, *names: str) -> Any:
    """The first of these settings that a configuration has and that is not empty or 0; None without one."""
    values = (getattr(owner, name, None) for name in names)
    return next((value for value in values if value), None)


def from_folder(
    folder: Path, tokenizer: Any, task: str = "SequenceClassification", owner: str = "HuggingFace"
) -> tuple[Any, Any]:
    """A model for a task, and its tokenizer unless one is given, from a folder; errors name the class ``owner``."""
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"{str(folder)!r} is not a folder with a config.json; nothing is downloaded, so fetch the model first "
            "and write it with model.save_pretrained(folder) and tokenizer.save_pretrained(folder)"
        )
    try:
        return load_carefully(folder, tokenizer, task)
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise ValueError(
            f"{str(folder)!r} needs Python code of its own, which is never run; if you trust it, load it yourself with "
            f"transformers and trust_remote_code=True, and pass {owner}(model, tokenizer)"
        ) from None


def load_carefully(folder: Path, tokenizer: Any, task: str, **options: Any) -> tuple[Any, Any]:
    """Read a model and its tokenizer; nothing is downloaded, and no code or kernel of the folder's is run."""
    refuse_older("torch", "2.10", "can be made to run code hidden in weights (CVE-2025-32434, CVE-2026-24747)")
    import transformers

    # If trust_remote_code is not False, transformers asks at the terminal, where `yes |` or a stray key may answer.
    options |= {"local_files_only": True, "trust_remote_code": False}
    config = transformers.AutoConfig.from_pretrained(folder, **options)
    config._attn_implementation = None  # a folder may name a compiled kernel to be downloaded and run
    kind = getattr(transformers, f"AutoModelFor{task}")
    model = kind.from_pretrained(folder, config=config, weights_only=True, **options)
    if tokenizer is None:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
    return model, tokenizer
