"""Makes the sentiment classifier that ships with the package, and scores it.

    python experiments/train_demo_text.py --data ../shared/data --device cuda      # everything, in one go
    python experiments/train_demo_text.py --data ../shared/data --score            # the shipped weights, on CPU

Three steps, which can also be run one by one and on different machines:

- `--steps prepare` reads the reviews and gte-small, prunes the vocabulary, and writes one bundle of arrays;
- `--steps train` needs PyTorch and the bundle alone: it fine-tunes gte-small as the teacher, then distils it
  into a small student on an endless stream of cropped, mixed and masked reviews;
- `--steps export` quantises the student to int8, writes the package's weights and scores them.

The defaults are about what the shipped weights were trained with (there, by the clock: 60 and 300 seconds of one
H200). The vocabulary is pruned before training, so the teacher and the student are both scored with it.
Training sees the train split of FDU14 and nothing else. Its test split is the validation set. The 6,459
Amazon-polarity reviews are only ever scored: no choice was made by looking at them.
"""

from __future__ import annotations

import argparse
import collections
import json
import lzma
import math
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

PAD, UNK, CLS, MASK = range(4)
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[MASK]")
LENGTH = 256  # pieces of a text the model reads, [CLS] included
PIECES = 16_000
NEIGHBOURS = 8


@dataclass(frozen=True)
class Shape:
    """The student's sizes."""

    width: int = 192
    hidden: int = 768
    heads: int = 4
    layers: int = 3


# ---------------------------------------------------------------- prepare: reviews and gte-small into one bundle


def read_reviews(path: Path) -> list[dict[str, Any]]:
    """The reviews of a compressed file of JSON lines."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def untokenise(text: str) -> str:
    """FDU14's treebank spelling as people write it, so that both corpora give the same pieces."""
    text = re.sub(r"\b(ca|wo|sha) n't\b", lambda m: {"ca": "can", "wo": "won", "sha": "shan"}[m[1]] + "'t", text)
    return text.replace(" n't", "n't").replace("``", '"').replace("''", '"')


def letters(text: str) -> str:
    """The first letters of a review's body: what tells whether two corpora hold the same review."""
    return re.sub(r"[^a-z]", "", text.lower())[:60]


def prune_vocabulary(vocabulary: list[str], texts: list[str]) -> list[str]:
    """The special tokens, every character met (or ASCII), and the most frequent pieces of the training texts."""
    from c2fa.models.local.demo import WordPiece

    tokenizer = WordPiece(vocabulary)
    counts = collections.Counter(i for text in texts for i in tokenizer.encode(text))
    known = set(vocabulary)
    characters = {c for text in texts for c in text.lower() if not c.isspace()} | {chr(c) for c in range(33, 127)}
    pieces = dict.fromkeys(SPECIALS)
    pieces |= dict.fromkeys(p for c in sorted(characters) for p in (c, "##" + c) if p in known)
    for i, _ in counts.most_common():
        if len(pieces) == PIECES:
            break
        pieces.setdefault(vocabulary[i])
    return list(pieces)


def encode_all(tokenizer: Any, texts: list[str]) -> dict[str, np.ndarray]:
    """All texts' pieces end to end, which of them start a word, and where each text starts."""
    ids: list[int] = []
    starts: list[bool] = []
    offsets = [0]
    for text in texts:
        for word in tokenizer.words(text):
            ids += word
            starts += [True] + [False] * (len(word) - 1)
        offsets.append(len(ids))
    return {
        "ids": np.array(ids, np.uint16),
        "starts": np.array(starts),
        "offsets": np.array(offsets, np.int64),
    }


def nearest_words(embeddings: np.ndarray, pieces: list[str]) -> np.ndarray:
    """For each whole word its nearest words by gte-small's embeddings; other pieces are their own."""
    own = np.arange(len(pieces), dtype=np.uint16)
    table = np.repeat(own[:, None], NEIGHBOURS, axis=1)
    words = np.array([i for i, p in enumerate(pieces) if len(p) > 2 and p.isalpha()])
    unit = embeddings[words] / np.linalg.norm(embeddings[words], axis=1, keepdims=True)
    for chunk in np.array_split(np.arange(len(words)), 20):
        near = np.argsort(-(unit[chunk] @ unit.T), axis=1)[:, 1 : NEIGHBOURS + 1]
        table[words[chunk]] = words[near]
    return table


def quantise(matrix: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """A matrix as int8 and one float32 scale per line along `axis`."""
    scale = np.abs(matrix).max(axis=axis, keepdims=True).astype(np.float32) / 127
    scale = np.maximum(scale, 1e-12)
    return np.clip(np.rint(matrix / scale), -127, 127).astype(np.int8), scale


def prepare(data: Path, bundle: Path) -> None:
    """Writes the bundle: token streams of the three sets, the pruned vocabulary, gte-small's weights."""
    from safetensors.numpy import load_file

    from c2fa.models.local.demo import WordPiece

    spec = json.loads((data / "bert_uncased_tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    vocabulary = sorted(spec, key=spec.__getitem__)
    fdu = read_reviews(data / "amazon_fdu14_clean.jsonl.xz")
    held = read_reviews(data / "amazon_polarity_test_first6459.jsonl.xz")
    secret = {letters(r["text"].split(": ", 1)[-1]) for r in held}
    sets = {
        "train": [r for r in fdu if r["split"] == "train" and letters(r["text"]) not in secret],
        "valid": [r for r in fdu if r["split"] == "test"],
        "held": held,
    }
    texts = {k: [untokenise(r["text"]) if k != "held" else r["text"] for r in v] for k, v in sets.items()}
    pieces = prune_vocabulary(vocabulary, texts["train"])
    tokenizer = WordPiece(pieces)
    arrays: dict[str, np.ndarray] = {"vocabulary": np.frombuffer("\n".join(pieces).encode(), np.uint8)}
    for name, reviews in sets.items():
        arrays |= {f"{name}.{k}": v for k, v in encode_all(tokenizer, texts[name]).items()}
        arrays[f"{name}.labels"] = np.array([r["label"] for r in reviews], np.int8)
        count = len(arrays[f"{name}.ids"])
        unknown = (arrays[f"{name}.ids"] == UNK).mean()
        print(f"{name}: {len(reviews)} reviews, {count} pieces, {unknown:.5f} unknown", flush=True)
    weights = load_file(data / "gte_small_bert_fp16.safetensors")
    table = weights.pop("embeddings.word_embeddings.weight")[[spec[p] for p in pieces]].astype(np.float32)
    arrays["neighbours"] = nearest_words(table, pieces)
    arrays["words.int8"], arrays["words.scale"] = quantise(table, axis=1)
    weights["embeddings.position_embeddings.weight"] = weights["embeddings.position_embeddings.weight"][:LENGTH]
    arrays |= {f"gte.{k}": v for k, v in weights.items()}
    np.savez_compressed(bundle, **arrays)  # type: ignore[arg-type]
    print(f"{bundle}: {bundle.stat().st_size / 2**20:.1f} MiB", flush=True)


# ------------------------------------------------------------------------ export: the student as int8 weights


def export(student: Path, bundle: Path, target: Path, exact: bool = False) -> None:
    """Writes the trained student for the package's runtime: as int8, or `exact`ly, to see what int8 costs."""
    weights = {k: v.astype(np.float32) for k, v in np.load(student).items()}
    shape = Shape(*weights.pop("shape").astype(int).tolist())
    out: dict[str, np.ndarray] = {
        "shape": np.array([shape.width, shape.hidden, shape.heads, shape.layers, LENGTH], np.int32),
        "vocabulary": np.load(bundle)["vocabulary"],
        "bias": weights.pop("bias"),
    }
    for name, matrix in weights.items():
        per_row = name in ("words", "positions", "head")
        values, scale = (matrix, np.ones(1)) if exact else quantise(matrix, axis=1 if per_row else 0)
        out[name], out[name + ".scale"] = values, scale.astype(np.float32)
    np.savez_compressed(target, **out)  # type: ignore[arg-type]
    print(f"{target.name}: {target.stat().st_size / 2**20:.2f} MiB", flush=True)


def score(data: Path, weights: Path | None = None) -> None:
    """Accuracy of the shipped (or the given) weights in the shipped runtime."""
    from c2fa.models.local.demo import DemoSentiment

    model = DemoSentiment(weights)
    fdu = [r for r in read_reviews(data / "amazon_fdu14_clean.jsonl.xz") if r["split"] == "test"]
    held = read_reviews(data / "amazon_polarity_test_first6459.jsonl.xz")
    for name, reviews in (("FDU14 test, validation", fdu), ("Amazon polarity, held out", held)):
        texts = [untokenise(r["text"]) if reviews is fdu else r["text"] for r in reviews]
        labels = np.array([r["label"] for r in reviews])
        began = time.perf_counter()
        right = (model(texts)[:, 1] > 0.5) == labels
        rate = len(texts) / (time.perf_counter() - began)
        print(f"{name}: accuracy {right.mean():.4f} of {len(texts)}, {rate:.0f} rows/s", flush=True)


def time_it(data: Path) -> None:
    """Rows per second of the shipped weights, on short texts and on masked variants of one."""
    from c2fa.models.local.demo import DemoSentiment

    model = DemoSentiment()
    texts = [r["text"].split() for r in read_reviews(data / "amazon_polarity_test_first6459.jsonl.xz")]
    short = [words[:22] for words in texts if len(words) >= 22][:3000]
    random = np.random.default_rng(0)
    hidden = random.random((3000, 22)) < random.random((3000, 1))
    masked = [[model.mask_token if h else w for w, h in zip(short[0], row, strict=True)] for row in hidden]
    for name, rows in (
        ("distinct texts of 22 words", short),
        ("masked variants of a text of 22 words", masked),
    ):
        batch = [" ".join(row) for row in rows]
        rates = []
        for _ in range(5):
            began = time.perf_counter()
            model(batch)
            rates.append(len(batch) / (time.perf_counter() - began))
        print(f"{name}: {np.median(rates):.0f} rows/s (median of 5; best {max(rates):.0f})", flush=True)
    began = time.perf_counter()
    for _ in range(20):
        model([" ".join(short[0])])
    print(f"one text a call: {(time.perf_counter() - began) / 20 * 1000:.1f} ms", flush=True)


# -------------------------------------------------------------------------------------------- train: PyTorch only


def train(bundle: Path, student_path: Path, device: str, args: argparse.Namespace) -> None:
    """Fine-tunes the teacher, distils the student, writes its weights."""
    import torch
    import torch.nn.functional as F
    from torch import Tensor, nn

    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    began = time.perf_counter()
    with np.load(bundle) as archive:
        arrays = {k: archive[k] for k in archive.files}
    shape = Shape()
    cuda = device.startswith("cuda")

    def autocast() -> Any:
        return torch.autocast("cuda" if cuda else "cpu", torch.bfloat16)

    def log(text: str) -> None:
        print(f"[{time.perf_counter() - began:6.1f} s] {text}", flush=True)

    class Teacher(nn.Module):
        """gte-small (BERT, 12 layers of 384) with a linear head over the mean of its states."""

        def __init__(self) -> None:
            super().__init__()
            words = arrays["words.int8"] * arrays["words.scale"]
            self.words = nn.Embedding.from_pretrained(torch.tensor(words), freeze=False)  # type: ignore[no-untyped-call]
            self.kept = nn.ParameterDict(
                {k[4:].replace(".", "/"): torch.tensor(v).float() for k, v in arrays.items() if k.startswith("gte.")}
            )
            self.head = nn.Linear(384, 1)

        def get(self, key: str) -> Tensor:
            found: Tensor = self.kept[key.replace(".", "/")]
            return found

        def dense(self, x: Tensor, key: str) -> Tensor:
            return F.linear(x, self.get(key + ".weight"), self.get(key + ".bias"))

        def norm(self, x: Tensor, key: str) -> Tensor:
            return F.layer_norm(x, (384,), self.get(key + ".weight"), self.get(key + ".bias"), 1e-12)

        def forward(self, ids: Tensor) -> tuple[Tensor, list[Tensor]]:
            rows, length = ids.shape
            there = ids != PAD
            x = self.words(ids) + self.get("embeddings.position_embeddings.weight")[:length]
            x = self.norm(x + self.get("embeddings.token_type_embeddings.weight")[0], "embeddings.LayerNorm")
            x = self.drop(x)
            states = [x]
            mask = there[:, None, None, :].expand(rows, 12, length, length)
            for i in range(12):
                at = f"encoder.layer.{i}."
                q, k, v = (
                    self.dense(x, f"{at}attention.self.{n}").view(rows, length, 12, 32).transpose(1, 2)
                    for n in ("query", "key", "value")
                )
                o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(rows, length, 384)
                o = self.drop(self.dense(o, at + "attention.output.dense"))
                x = self.norm(x + o, at + "attention.output.LayerNorm")
                o = self.dense(F.gelu(self.dense(x, at + "intermediate.dense")), at + "output.dense")
                x = self.norm(x + self.drop(o), at + "output.LayerNorm")
                if i % 4 == 3:
                    states.append(x)
            weight = there[..., None].to(x.dtype)
            mean = (x * weight).sum(1) / weight.sum(1)
            return self.head(mean)[:, 0].float(), states

        def drop(self, x: Tensor) -> Tensor:
            return F.dropout(x, 0.1, self.training)

    class Student(nn.Module):
        """A few narrow layers without biases, then one layer in which only [CLS] asks."""

        def __init__(self) -> None:
            super().__init__()
            w, h = shape.width, shape.hidden
            table = torch.tensor(arrays["words.int8"] * arrays["words.scale"])
            position = torch.tensor(arrays["gte.embeddings.position_embeddings.weight"]).float()
            seen = torch.bincount(torch.tensor(arrays["train.ids"].astype(np.int64)), minlength=len(table)).float()
            middle = (table * seen[:, None]).sum(0) / seen.sum()
            centred = (table - middle) * seen.sqrt()[:, None]
            axes = torch.linalg.svd(centred, full_matrices=False)[2][:w].T
            start = (table - middle) @ axes
            size = start.std()
            self.words = nn.Embedding.from_pretrained(start / size, freeze=False)  # type: ignore[no-untyped-call]
            self.positions = nn.Parameter(((position - position.mean(0)) @ axes) / size)

            def matrix(rows: int, columns: int, gain: float = 1.0) -> nn.Parameter:
                return nn.Parameter(torch.randn(rows, columns) * gain / math.sqrt(rows))

            deep = 1 / math.sqrt(2 * (shape.layers + 1))
            blocks = range(shape.layers + 1)
            self.qkv = nn.ParameterList([matrix(w, 3 * w) for _ in blocks])
            self.out = nn.ParameterList([matrix(w, w, deep) for _ in blocks])
            self.up = nn.ParameterList([matrix(w, h, math.sqrt(2)) for _ in blocks])
            self.down = nn.ParameterList([matrix(h, w, deep) for _ in blocks])
            self.gain = nn.ParameterList([nn.Parameter(torch.ones(w)) for _ in range(2 * shape.layers + 3)])
            self.head = nn.Parameter(torch.randn(1, w) / math.sqrt(w))
            self.bias = nn.Parameter(torch.zeros(1))
            self.views = nn.ModuleList([nn.Linear(w, 384) for _ in range(shape.layers + 1)])  # training only

        def norm(self, x: Tensor, i: int) -> Tensor:
            return F.rms_norm(x.float(), (shape.width,), self.gain[i], 1e-6)

        def split(self, x: Tensor) -> Tensor:
            return x.view(x.shape[0], x.shape[1], shape.heads, -1).transpose(1, 2)

        def forward(self, ids: Tensor) -> tuple[Tensor, list[Tensor]]:
            rows, length = ids.shape
            mask = (ids != PAD)[:, None, None, :]
            x = self.words(ids) + self.positions[:length]
            states = [x]
            for i in range(shape.layers):
                q, k, v = (self.split(p) for p in (self.norm(x, 2 * i) @ self.qkv[i]).chunk(3, -1))
                o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(rows, shape.heads, length, length))
                x = x + o.transpose(1, 2).reshape(rows, length, -1) @ self.out[i]
                x = x + F.relu(self.norm(x, 2 * i + 1) @ self.up[i]) @ self.down[i]
                states.append(x)
            last = shape.layers
            q, k, v = (self.split(p) for p in (self.norm(x, 2 * last) @ self.qkv[last]).chunk(3, -1))
            o = F.scaled_dot_product_attention(q[:, :, :1], k, v, attn_mask=mask.expand(rows, shape.heads, 1, length))
            c = x[:, 0] + o.reshape(rows, -1) @ self.out[last]
            c = c + F.relu(self.norm(c, 2 * last + 1) @ self.up[last]) @ self.down[last]
            return (self.norm(c, 2 * last + 2).float() @ self.head[0] + self.bias).float(), states

        def weights(self) -> dict[str, np.ndarray]:
            """The trained weights under the runtime's names, each norm's gain folded into what follows it."""
            gains = [g.detach() for g in self.gain]
            out: dict[str, Tensor] = {"words": self.words.weight, "positions": self.positions}
            for i in range(shape.layers + 1):
                qkv = self.qkv[i] * gains[2 * i][:, None]
                qkv = torch.cat(
                    [qkv[:, : shape.width] / math.sqrt(shape.width // shape.heads), qkv[:, shape.width :]], 1
                )
                out |= {f"{i}.qkv": qkv, f"{i}.out": self.out[i]}
                out |= {f"{i}.up": self.up[i] * gains[2 * i + 1][:, None], f"{i}.down": self.down[i]}
            out |= {"head": self.head * gains[-1], "bias": self.bias}
            return {k: v.detach().half().cpu().numpy() for k, v in out.items()}

    class Stream:
        """Endless batches of whole, cropped and mixed training reviews, masked and changed at random."""

        def __init__(self) -> None:
            ids = torch.tensor(arrays["train.ids"].astype(np.int64), device=device)
            offsets = torch.tensor(arrays["train.offsets"], device=device)
            pieces = arrays["vocabulary"].tobytes().decode().split("\n")
            ends = torch.tensor([pieces.index(p) for p in ".!?"], device=device)
            stop = torch.isin(ids, ends)
            fresh = torch.zeros_like(stop)
            fresh[1:] = stop[:-1] & ~stop[1:]
            fresh[offsets[:-1][offsets[:-1] < len(ids)]] = True
            self.ids, self.sentence = ids, fresh
            self.word = torch.tensor(arrays["train.starts"], device=device)
            self.text_end = torch.repeat_interleave(offsets[1:], offsets.diff())
            self.label = torch.repeat_interleave(
                torch.tensor(arrays["train.labels"].astype(np.float32), device=device), offsets.diff()
            )
            self.sentences = fresh.nonzero()[:, 0]
            lengths = offsets.diff()
            self.texts = {}
            for size in (32, 64, 128, 256):
                least = 0 if size == 32 else size // 2
                fits = (lengths > least) & (lengths < size) if size < 256 else lengths > least
                self.texts[size] = offsets[:-1][fits]
            self.near = torch.tensor(arrays["neighbours"].astype(np.int64), device=device)

        def pick(self, among: Tensor, count: int) -> Tensor:
            return among[torch.randint(len(among), (count,), device=device)]

        def segment(self, start: Tensor, most: Tensor) -> Tensor:
            """How many pieces to take from `start`: at most `most`, and not beyond the text's end."""
            return torch.minimum(self.text_end[start] - start, most)

        def batch(self, tokens: int, size: int, mixed: bool) -> tuple[Tensor, Tensor]:
            """Rows of `size` pieces, and the label of the review that each row starts with."""
            rows = tokens // size
            room = size - 1
            whole = torch.rand(rows, device=device) < (0.35 if mixed else 0.6)
            first = torch.where(whole, self.pick(self.texts[size], rows), self.pick(self.sentences, rows))
            share = torch.rand(rows, device=device)
            most = torch.where(whole, room, (room * (0.25 + 0.75 * share)).long().clamp(min=2))
            take = self.segment(first, most)
            second = self.pick(self.sentences, rows)
            both = ~whole & (torch.rand(rows, device=device) < (0.5 if mixed else 0.0))
            more = torch.where(both, self.segment(second, room - take), 0)
            j = torch.arange(room, device=device)[None]
            at = torch.where(j < take[:, None], first[:, None] + j, second[:, None] + j - take[:, None])
            there = j < (take + more)[:, None]
            at = torch.where(there, at, 0)
            ids = self.swap(torch.where(there, self.ids[at], PAD))
            starts = self.word[at] | (j == 0) | (j == take[:, None])
            units = torch.where(torch.rand(rows, 1, device=device) < 0.25, self.sentence[at] | (j == 0), starts)
            ids = self.hide(ids, there, starts, units, 1.0 if mixed else 0.7)
            return ids, self.label[first]

        def swap(self, ids: Tensor) -> Tensor:
            """Some rows with some words replaced by a near one: the student then meets rare words often."""
            rows = ids.shape[0]
            rate = torch.rand(rows, 1, device=device) * 0.35 * (torch.rand(rows, 1, device=device) < 0.4)
            other = self.near[ids, torch.randint(NEIGHBOURS, ids.shape, device=device)]
            return torch.where(torch.rand(ids.shape, device=device) < rate, other, ids)

        def hide(self, ids: Tensor, there: Tensor, starts: Tensor, units: Tensor, hardest: float) -> Tensor:
            """Masks or drops whole units (words or sentences); a masked word of several pieces is one mask."""
            rows, room = ids.shape
            j = torch.arange(room, device=device)[None].expand(rows, room)
            unit = torch.where(units, j, 0).cummax(1).values
            rate = torch.rand(rows, 1, device=device) * hardest
            rate = torch.where(torch.rand(rows, 1, device=device) < 0.45, 0.0, rate)
            hidden = torch.rand(rows, room, device=device).gather(1, unit) < rate
            drop = torch.rand(rows, 1, device=device) < 0.2
            keep = there & ~(hidden & (drop | ~starts))
            ids = torch.where(hidden, MASK, ids)
            place = torch.where(keep, keep.long().cumsum(1), room + 1)
            out = torch.full((rows, room + 2), PAD, device=device)
            out.scatter_(1, place, ids)
            out[:, 0] = CLS
            return out[:, : room + 1]

    def evaluate(model: nn.Module, name: str) -> float:
        """Accuracy on one of the sets, each text cut to the length the model reads."""
        ids, offsets, labels = (arrays[f"{name}.{k}"] for k in ("ids", "offsets", "labels"))
        if args.tiny:
            offsets, labels = offsets[:65], labels[:64]
        order = np.argsort(np.diff(offsets), kind="stable")
        right = 0
        model.eval()
        for rows in np.array_split(order, max(1, len(order) // 256)):
            length = min(LENGTH, 1 + int(np.diff(offsets)[rows].max()))
            batch = np.full((len(rows), length), PAD, np.int64)
            batch[:, 0] = CLS
            for i, r in enumerate(rows):
                cut = ids[offsets[r] : offsets[r + 1]][: length - 1]
                batch[i, 1 : 1 + len(cut)] = cut
            with torch.no_grad(), autocast():
                logits = model(torch.tensor(batch, device=device))[0]
            right += int(((logits > 0).cpu().numpy() == (labels[rows] == 1)).sum())
        model.train()
        return right / len(order)

    def rate_at(done: float, peak: float, warm: float = 0.04) -> float:
        return peak * min(done / warm, 0.5 * (1 + math.cos(math.pi * min(1.0, done))))

    sizes = np.array([32, 64, 128, 256])
    random = np.random.default_rng(args.seed)
    stream = Stream()
    log(f"{len(stream.sentences)} sentences; {[len(v) for v in stream.texts.values()]} texts by size")

    teacher = Teacher().to(device)
    teacher.train()
    optimiser = torch.optim.AdamW(teacher.parameters(), lr=1e-4, weight_decay=0.01)
    since, step, done = time.perf_counter(), 0, 0.0
    while done < 1:
        for group in optimiser.param_groups:
            group["lr"] = rate_at(done, 1e-4)
        size = int(random.choice(sizes, p=[0.1, 0.2, 0.35, 0.35]))
        ids, labels = stream.batch(args.teacher_tokens, size, mixed=False)
        with autocast():
            logits = teacher(ids)[0]
        loss = F.binary_cross_entropy_with_logits(logits, labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(teacher.parameters(), 1.0)
        optimiser.step()
        step += 1
        done = max(step / args.teacher_steps, (time.perf_counter() - since) / args.teacher_seconds)
        if step % 200 == 0:
            log(f"teacher step {step}: loss {loss.item():.4f}")
    log(f"teacher after {step} steps: valid {evaluate(teacher, 'valid'):.4f}, held {evaluate(teacher, 'held'):.4f}")
    teacher.eval().requires_grad_(False)

    student = Student().to(device)
    optimiser = torch.optim.AdamW(student.parameters(), lr=args.rate, weight_decay=0.02, betas=(0.9, 0.98), fused=cuda)
    frozen = teacher.to(torch.bfloat16) if cuda else teacher
    since, step, done, seen, told = time.perf_counter(), 0, 0.0, 0, 0.0
    while done < 1:
        for group in optimiser.param_groups:
            group["lr"] = rate_at(done, args.rate)
        size = int(random.choice(sizes, p=[0.2, 0.3, 0.3, 0.2]))
        ids, _ = stream.batch(args.tokens, size, mixed=True)
        with torch.no_grad():
            target, views = frozen(ids)
        with autocast():
            logits, states = student(ids)
            there = (ids != PAD)[..., None]
            count = there.sum() * 384
            likeness = torch.zeros((), device=device)
            close = max(0.0, 1 - done / 0.7)
            if close:
                for view, state, wanted in zip(student.views, states, views, strict=True):
                    gap = (view(state) - wanted) * there
                    likeness = likeness + gap.square().sum(dtype=torch.float32) / count
        soft = F.binary_cross_entropy_with_logits(logits, torch.sigmoid(target))
        softer = F.binary_cross_entropy_with_logits(logits / 3, torch.sigmoid(target / 3))
        loss = soft + 2 * softer + args.likeness * close * likeness
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimiser.step()
        step, seen = step + 1, seen + ids.numel()
        done = max(step / args.steps, (time.perf_counter() - since) / args.seconds)
        if done >= told:
            told += 0.1
            log(
                f"student step {step}, {seen / 1e6:.0f}M pieces: loss {soft.item():.4f}, "
                f"likeness {likeness.item():.3f}, valid {evaluate(student, 'valid'):.4f}"
            )
            np.savez(student_path, **{"shape": np.array([*vars(shape).values()]), **student.weights()})  # type: ignore[arg-type]
    log(f"float student: valid {evaluate(student, 'valid'):.4f}, held {evaluate(student, 'held'):.4f}")
    np.savez(student_path, **{"shape": np.array([*vars(shape).values()]), **student.weights()})  # type: ignore[arg-type]


def main() -> None:
    """Runs the steps asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "demo", help="where the bundle is kept")
    parser.add_argument("--out", type=Path, help="where the trained student is written (default: --work)")
    parser.add_argument("--steps", dest="parts", default="prepare,train,export")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--score", action="store_true", help="only score the shipped weights")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--teacher-seconds", type=float, default=1e9)
    parser.add_argument("--teacher-steps", type=int, default=1550)
    parser.add_argument("--teacher-tokens", type=int, default=12_288)
    parser.add_argument("--seconds", type=float, default=1e9, help="the longest the student is trained")
    parser.add_argument("--student-steps", dest="steps", type=int, default=13_400)
    parser.add_argument("--tokens", type=int, default=49_152, help="pieces in a batch of the student")
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--likeness", type=float, default=3.0, help="weight of the teacher's hidden states")
    parser.add_argument("--tiny", action="store_true", help="evaluate on a handful: a test that it runs")
    args = parser.parse_args()
    bundle, out = args.work / "bundle.npz", args.out or args.work
    target = ROOT / "src" / "c2fa" / "models" / "data" / "demo_sentiment.npz"
    if args.score:
        score(args.data)
        time_it(args.data)
        return
    args.work.mkdir(parents=True, exist_ok=True)
    parts = args.parts.split(",")
    if "prepare" in parts:
        prepare(args.data, bundle)
    if "train" in parts:
        train(bundle, out / "student.npz", args.device, args)
    if "export" in parts:
        for exact, name in ((True, args.work / "exact.npz"), (False, target)):
            print("float weights, numpy runtime" if exact else "int8 weights, numpy runtime (shipped)")
            export(out / "student.npz", bundle, name, exact)
            score(args.data, name)
        time_it(args.data)


if __name__ == "__main__":
    main()
