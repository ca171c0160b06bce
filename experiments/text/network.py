"""BERT in plain PyTorch, with a classifier over the mean of its states.

The names and the mathematics are those of BERT (post-norm layers, learned positions, gelu by the error function, all
pieces of type 0), pooled as gte-small is: the mean over the pieces, [CLS] and [SEP] among them. Queries, keys and
values come from one matrix product, and a batch whose rows have one length needs no attention mask, as is the case
for all masked variants of one review.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.harness import weights
from experiments.harness.weights import Arrays
from experiments.text.reviews import CLS, ENCODER, MASK, SEP

WORDS, PIECES = "embeddings.word_embeddings.weight", "embeddings.pieces"
HALF_MAX = 65504.0


@dataclass(frozen=True)
class Shape:
    """The network's sizes; those of gte-small unless told."""

    vocabulary: int = 30522
    positions: int = 512
    width: int = 384
    hidden: int = 1536
    heads: int = 12
    layers: int = 12
    classes: int = 2


class Layer(nn.Module):
    """Attention, then two dense layers; each is added to what came in, and the sum is normalised."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        w = shape.width
        self.heads = shape.heads
        self.qkv, self.out = nn.Linear(w, 3 * w), nn.Linear(w, w)
        self.up, self.down = nn.Linear(w, shape.hidden), nn.Linear(shape.hidden, w)
        self.norm1, self.norm2 = nn.LayerNorm(w, eps=1e-12), nn.LayerNorm(w, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        rows, length, width = x.shape
        qkv = self.qkv(x).view(rows, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        o = self.out(o.transpose(1, 2).reshape(rows, length, width))
        x = self.norm1(x + F.dropout(o, dropout, self.training))
        o = self.down(F.gelu(self.up(x)))
        out: Tensor = self.norm2(x + F.dropout(o, dropout, self.training))
        return out


class Classifier(nn.Module):
    """BERT and a linear layer over the mean of its states.

    Parameters
    ----------
    shape
        The network's sizes.
    dropout
        The share of states that is dropped while training.
    """

    def __init__(self, shape: Shape | None = None, dropout: float = 0.1) -> None:
        super().__init__()
        self.shape = shape = shape or Shape()
        self.dropout = dropout
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Parameter(torch.zeros(shape.positions, shape.width))
        self.kind = nn.Parameter(torch.zeros(shape.width))
        self.norm = nn.LayerNorm(shape.width, eps=1e-12)
        self.layers = nn.ModuleList([Layer(shape) for _ in range(shape.layers)])
        self.head = nn.Linear(shape.width, shape.classes)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    # -- what it answers ---------------------------------------------------------------------------

    def forward(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Logits of rows that start with [CLS] and end with [SEP].

        Parameters
        ----------
        ids
            Numbers of word pieces, one row a text.
        lengths
            How many pieces of each row are real; None if all are, which is faster.
        """
        mean = self.pooled(ids, lengths)
        with torch.autocast(ids.device.type, enabled=False):  # two logits cost nothing in single precision
            logits: Tensor = self.head(mean.to(self.head.weight.dtype))
            return logits.float()

    def forward_same_length(self, ids: Tensor) -> Tensor:
        """Logits of rows without padding: no attention mask is made."""
        return self.forward(ids, None)

    def forward_masked(self, pieces: Tensor, kept: Tensor) -> Tensor:
        """Logits of one review under many masks: [MASK] stands in place of each piece that is not kept.

        Only the masks have to travel to the device, one byte a piece.
        """
        rows = len(kept)
        inner = torch.where(kept, pieces, MASK)
        edges = [torch.full((rows, 1), k, dtype=inner.dtype, device=inner.device) for k in (CLS, SEP)]
        return self.forward(torch.cat([edges[0], inner, edges[1]], 1))

    def pooled(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The mean state of each row's real pieces, in single precision."""
        rows, length = ids.shape
        if length > self.shape.positions:
            raise ValueError(f"{length} pieces are more than the {self.shape.positions} that the network can read")
        there = mask = None
        if lengths is not None:
            there = torch.arange(length, device=ids.device) < lengths[:, None]
            mask = there[:, None, None, :].expand(rows, self.shape.heads, length, length)
        x: Tensor = self.norm(self.words(ids) + self.positions[:length] + self.kind)
        x = F.dropout(x, self.dropout, self.training)
        for layer in self.layers:
            x = layer(x, mask, self.dropout)
        if there is None:
            return x.mean(1, dtype=torch.float32)
        return (x.float() * there[..., None]).sum(1) / there.sum(1, keepdim=True)

    @torch.no_grad()
    def predict(self, ids: Any, pieces_at_once: int = 1 << 17) -> np.ndarray[Any, Any]:
        """Probabilities, of shape (rows, classes), of a numpy array of rows of one length.

        Raises
        ------
        ValueError
            If a row holds a piece that a restricted set of weights left out.
        """
        ids = np.atleast_2d(np.asarray(ids))
        device = self.positions.device
        step = max(1, pieces_at_once // ids.shape[1])
        was, out = self.training, []
        self.eval()
        for start in range(0, len(ids), step):
            rows = torch.as_tensor(ids[start : start + step].astype(np.int64)).to(device)
            out.append(self.forward_same_length(rows).softmax(-1))
        self.train(was)
        return _checked(torch.cat(out) if out else torch.zeros(0, self.shape.classes))

    @torch.no_grad()
    def predict_masked(self, pieces: Any, kept: Any, pieces_at_once: int = 1 << 17) -> np.ndarray[Any, Any]:
        """Probabilities of one review's pieces (without [CLS] and [SEP]) under many masks, True where kept."""
        kept = np.atleast_2d(np.asarray(kept, dtype=np.bool_))
        device = self.positions.device
        row = torch.as_tensor(np.asarray(pieces, dtype=np.int64)).to(device)
        step = max(1, pieces_at_once // (len(row) + 2))
        was, out = self.training, []
        self.eval()
        for start in range(0, len(kept), step):
            masks = torch.as_tensor(kept[start : start + step]).to(device)
            out.append(self.forward_masked(row, masks).softmax(-1))
        self.train(was)
        return _checked(torch.cat(out) if out else torch.zeros(0, self.shape.classes))

    def fast(self, dtype: torch.dtype = torch.float16, device: str | torch.device | None = None) -> Classifier:
        """A copy for asking many questions, in half precision; only the mean and the head stay in single."""
        twin = copy.deepcopy(self).requires_grad_(False).eval().to(device=device, dtype=dtype)
        twin.head.float()
        return twin

    # -- weights -----------------------------------------------------------------------------------

    @property
    def _layers(self) -> list[Layer]:
        return [layer for layer in self.layers if isinstance(layer, Layer)]

    def arrays(self, keep: Sequence[int] | np.ndarray[Any, Any] | None = None) -> Arrays:
        """The weights under BERT's names, in half precision.

        Parameters
        ----------
        keep
            The word pieces whose embeddings are wanted; None for all that are known.
        """
        w = self.shape.width
        out = {
            "embeddings.position_embeddings.weight": self.positions,
            "embeddings.token_type_embeddings.weight": self.kind[None],
            **_pair("embeddings.LayerNorm", self.norm),
            **_pair("classifier", self.head),
        }
        for i, layer in enumerate(self._layers):
            at = f"encoder.layer.{i}."
            for j, name in enumerate(("query", "key", "value")):
                part = slice(j * w, (j + 1) * w)
                out[f"{at}attention.self.{name}.weight"] = layer.qkv.weight[part]
                out[f"{at}attention.self.{name}.bias"] = layer.qkv.bias[part]
            out |= _pair(at + "attention.output.dense", layer.out) | _pair(
                at + "attention.output.LayerNorm", layer.norm1
            )
            out |= _pair(at + "intermediate.dense", layer.up) | _pair(at + "output.dense", layer.down)
            out |= _pair(at + "output.LayerNorm", layer.norm2)
        found = {name: value.detach().float().cpu().numpy() for name, value in out.items()}
        words = self.words.weight.detach().float().cpu().numpy()
        known = np.flatnonzero(~np.isnan(words).any(1))
        if keep is not None:
            missing = np.setdiff1d(keep, known)
            if len(missing):
                raise ValueError(f"piece {missing[0]} has no embedding here: keep only pieces that are known")
            known = np.unique(keep)
        found[WORDS] = words[known]
        for name, value in found.items():
            if not np.abs(value).max() <= HALF_MAX:
                raise ValueError(f"{name} does not fit half precision: train again with a lower rate")
        halves = {name: value.astype(np.float16) for name, value in found.items()}
        return halves if len(known) == len(words) else halves | {PIECES: known.astype(np.int32)}

    def save(
        self, path: Path, keep: Sequence[int] | np.ndarray[Any, Any] | None = None, part_mib: float | None = None
    ) -> list[Path]:
        """Writes the weights in half precision; see `arrays` for `keep` and `weights.write` for the rest.

        With `keep`, the file leaves out the embeddings of all other pieces. What is loaded from it answers alike on
        every text of the pieces kept, and refuses all other texts.
        """
        about = {"heads": str(self.shape.heads), "vocabulary": str(self.shape.vocabulary)}
        return weights.write(path, self.arrays(keep), about, part_mib)

    @classmethod
    def load(cls, path: Path, heads: int = 12, dropout: float = 0.1) -> Classifier:
        """A classifier, or an encoder with a fresh head, from a file of weights under BERT's names.

        Parameters
        ----------
        path
            A file that `save` wrote, or any BertModel's.
        heads
            Attention heads, where the file does not say.
        dropout
            The share of states that is dropped while training.
        """
        arrays, about = weights.read(path, _how(Path(path)))
        arrays = {name.removeprefix("bert."): value.astype(np.float32) for name, value in arrays.items()}
        words = arrays[WORDS]
        positions, width = arrays["embeddings.position_embeddings.weight"].shape
        shape = Shape(
            vocabulary=int(about.get("vocabulary", len(words))),
            positions=positions,
            width=width,
            hidden=len(arrays["encoder.layer.0.intermediate.dense.bias"]),
            heads=int(about.get("heads", heads)),
            layers=1 + max(int(name.split(".")[2]) for name in arrays if name.startswith("encoder.layer.")),
            classes=len(arrays.get("classifier.bias", np.zeros(2))),
        )
        model = cls(shape, dropout)

        def copy_into(module: Any, name: str) -> None:
            module.weight.copy_(torch.from_numpy(arrays[name + ".weight"]))
            module.bias.copy_(torch.from_numpy(arrays[name + ".bias"]))

        with torch.no_grad():
            if PIECES in arrays:
                # Pieces without an embedding answer NaN, so that nothing can be asked of them unnoticed.
                model.words.weight.fill_(torch.nan)
                model.words.weight[torch.from_numpy(arrays[PIECES].astype(np.int64))] = torch.from_numpy(words)
            else:
                model.words.weight.copy_(torch.from_numpy(words))
            model.positions.copy_(torch.from_numpy(arrays["embeddings.position_embeddings.weight"]))
            model.kind.copy_(torch.from_numpy(arrays["embeddings.token_type_embeddings.weight"][0]))
            copy_into(model.norm, "embeddings.LayerNorm")
            for i, layer in enumerate(model._layers):
                at = f"encoder.layer.{i}."
                for j, name in enumerate(("query", "key", "value")):
                    part = slice(j * width, (j + 1) * width)
                    layer.qkv.weight[part] = torch.from_numpy(arrays[f"{at}attention.self.{name}.weight"])
                    layer.qkv.bias[part] = torch.from_numpy(arrays[f"{at}attention.self.{name}.bias"])
                copy_into(layer.out, at + "attention.output.dense")
                copy_into(layer.norm1, at + "attention.output.LayerNorm")
                copy_into(layer.up, at + "intermediate.dense")
                copy_into(layer.down, at + "output.dense")
                copy_into(layer.norm2, at + "output.LayerNorm")
            if "classifier.weight" in arrays:
                copy_into(model.head, "classifier")
        return model.eval()


def agreement(model: Classifier, rows: Sequence[Any], dtype: torch.dtype = torch.float16) -> tuple[float, float]:
    """How far half precision is from single: the mean and the largest difference in probability.

    Parameters
    ----------
    model
        The classifier in single precision.
    rows
        Arrays of word pieces with [CLS] and [SEP]; each is of one length.
    dtype
        What the fast copy computes in.
    """
    twin = model.fast(dtype)
    gaps = np.concatenate([np.abs(model.predict(r) - twin.predict(r)).max(1) for r in rows])
    return float(gaps.mean()), float(gaps.max())


def _how(path: Path) -> str:
    """What to do where weights are missing."""
    if path.name == ENCODER:
        return f"write them with 'python -m experiments.text.reviews --out {path.parent}'"
    return f"train them with 'python -m experiments.text.train --out {path}'"


def _pair(name: str, module: Any) -> dict[str, Tensor]:
    return {name + ".weight": module.weight, name + ".bias": module.bias}


def _checked(probabilities: Tensor) -> np.ndarray[Any, Any]:
    out = probabilities.double().cpu().numpy()
    if np.isnan(out).any():
        raise ValueError(
            f"row {int(np.isnan(out).any(1).argmax())} holds a word piece that these weights leave out: "
            "load weights that were saved with it"
        )
    return out
