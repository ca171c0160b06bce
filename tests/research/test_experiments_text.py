"""The text experiment's reviews, network and training, on small made-up ones and, where they are, the real ones."""

from __future__ import annotations

import doctest
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("experiments", reason="the experiments are in a clone, not in a source distribution")
torch = pytest.importorskip("torch")

from experiments.text import reviews, train
from experiments.text.network import Classifier, Shape
from experiments.text.reviews import CLS, MASK, PAD, SEP, Review

TINY = Shape(vocabulary=140, positions=24, width=12, hidden=20, heads=3, layers=2, classes=2)


def tiny(seed: int = 0, scale: float = 0.5) -> Classifier:
    """A small network with weights large enough that every part of it matters."""
    torch.manual_seed(seed)
    model = Classifier(TINY)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(torch.randn(value.shape) * scale + ("norm" in name and name.endswith("weight")))
    return model.eval()


def review(ids: list[int], owner: list[int], label: int = 1) -> Review:
    """A made-up review."""
    names = tuple(f"p{i}" for i in ids)
    sentences = tuple(f"s{j}" for j in range(max(owner) + 1))
    return Review(np.array(ids), np.array(owner), names, sentences, label, " ".join(names), 0)


def literal_logits(arrays: dict[str, np.ndarray], ids: list[int], heads: int) -> np.ndarray:
    """BERT read out slowly from its definition, number by number, in double precision."""
    w = {k: v.astype(float) for k, v in arrays.items()}

    def dense(v: np.ndarray, name: str) -> np.ndarray:
        return w[name + ".weight"] @ v + w[name + ".bias"]

    def norm(v: np.ndarray, name: str) -> np.ndarray:
        spread = np.mean((v - v.mean()) ** 2)
        return (v - v.mean()) / math.sqrt(spread + 1e-12) * w[name + ".weight"] + w[name + ".bias"]

    words, places = w["embeddings.word_embeddings.weight"], w["embeddings.position_embeddings.weight"]
    kind = w["embeddings.token_type_embeddings.weight"][0]
    x = [norm(words[i] + places[t] + kind, "embeddings.LayerNorm") for t, i in enumerate(ids)]
    size = len(x[0]) // heads
    layers = 1 + max(int(k.split(".")[2]) for k in w if k.startswith("encoder"))
    for i in range(layers):
        at = f"encoder.layer.{i}."
        q, k, v = ([dense(s, f"{at}attention.self.{n}") for s in x] for n in ("query", "key", "value"))
        mixed = []
        for t in range(len(x)):
            out = []
            for h in range(heads):
                part = slice(h * size, (h + 1) * size)
                scores = [math.exp(float(q[t][part] @ k[u][part]) / math.sqrt(size)) for u in range(len(x))]
                out.append(sum(s * v[u][part] for u, s in enumerate(scores)) / sum(scores))
            mixed.append(np.concatenate(out))
        x = [
            norm(s + dense(m, at + "attention.output.dense"), at + "attention.output.LayerNorm")
            for s, m in zip(x, mixed, strict=True)
        ]
        for t, s in enumerate(x):
            wide = [a * 0.5 * (1 + math.erf(a / math.sqrt(2))) for a in dense(s, at + "intermediate.dense")]
            x[t] = norm(s + dense(np.array(wide), at + "output.dense"), at + "output.LayerNorm")
    return dense(sum(x) / len(x), "classifier")


# ------------------------------------------------------------------------------------------------------ the network


def in_single(model: Classifier) -> dict[str, np.ndarray]:
    """The weights under BERT's names, as a loaded half-precision file gives them."""
    return {k: v.astype(np.float32) for k, v in model.arrays().items()}


@pytest.mark.parametrize("length", [2, 3, 9, 24])
def test_the_network_is_bert_by_its_definition(tmp_path: Path, length: int) -> None:
    tiny().save(tmp_path / "w.safetensors")
    model = Classifier.load(tmp_path / "w.safetensors")
    ids = np.random.default_rng(length).integers(0, TINY.vocabulary, (3, length))
    got = model(torch.tensor(ids)).detach().numpy()
    expected = [literal_logits(in_single(model), row.tolist(), TINY.heads) for row in ids]
    np.testing.assert_allclose(got, expected, atol=2e-5)
    chances = np.exp(expected) / np.exp(expected).sum(1, keepdims=True)
    np.testing.assert_allclose(model.predict(ids), chances, atol=1e-5)


@given(seed=st.integers(0, 10**6), lengths=st.lists(st.integers(2, 20), min_size=1, max_size=6))
@settings(max_examples=25)
def test_padding_changes_nothing(seed: int, lengths: list[int]) -> None:
    model, random = tiny(), np.random.default_rng(seed)
    rows = [random.integers(0, TINY.vocabulary, n) for n in lengths]
    padded = np.full((len(rows), max(lengths) + 3), PAD)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    with torch.no_grad():
        together = model(torch.tensor(padded), torch.tensor(lengths))
        alone = [model.forward_same_length(torch.tensor(row)[None])[0] for row in rows]
    np.testing.assert_allclose(together, torch.stack(alone), atol=1e-5)


def test_masked_rows_are_asked_as_the_review_writes_them() -> None:
    model, one = tiny(), review([5, 9, 7, 9, 130], [0, 0, 1, 1, 1])
    kept = np.random.default_rng(0).random((40, 5)) < 0.5
    expected = model.predict(one.rows(kept))
    np.testing.assert_allclose(model.predict_masked(one.ids, kept), expected, atol=1e-7)
    np.testing.assert_allclose(model.predict_masked(one.ids, kept, pieces_at_once=20), expected, atol=1e-6)
    np.testing.assert_allclose(model.predict(one.rows(kept), pieces_at_once=1), expected, atol=1e-6)
    assert np.ptp(expected[:, 1]) > 0.01
    assert model.predict_masked(one.ids, np.zeros((0, 5))).shape == (0, 2)


def test_half_precision_agrees_and_leaves_the_model_alone(in_half_precision: Any) -> None:
    in_half_precision(
        """
        import numpy as np, torch
        from experiments.text import network
        from test_experiments_text import TINY, tiny

        model = tiny(scale=0.3)
        before = model.arrays()
        rows = [np.random.default_rng(n).integers(0, TINY.vocabulary, (20, n)) for n in (4, 17)]
        mean, most = network.agreement(model, rows)
        assert 0 < mean <= most < 5e-3
        assert mean < network.agreement(model, rows, torch.bfloat16)[0]
        assert model.words.weight.dtype == torch.float32
        after = model.arrays()
        assert all(np.array_equal(before[k], after[k]) for k in before)
        """
    )


def test_a_row_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="25 pieces are more than the 24"):
        tiny().predict(np.zeros((1, 25), int))


# ------------------------------------------------------------------------------------------------------ the weights


def test_weights_of_some_pieces_answer_alike_and_refuse_the_others(tmp_path: Path) -> None:
    model, keep = tiny(), [5, 7, 9, 130, PAD, CLS, SEP, MASK]
    model.save(tmp_path / "all.safetensors")
    model.save(tmp_path / "some.safetensors", keep)
    whole, part = (Classifier.load(tmp_path / f"{n}.safetensors") for n in ("all", "some"))
    assert (tmp_path / "some.safetensors").stat().st_size < (tmp_path / "all.safetensors").stat().st_size
    rows = review([5, 9, 7, 9, 130], [0, 0, 1, 1, 1]).rows(np.random.default_rng(0).random((30, 5)) < 0.5)
    assert np.array_equal(whole.predict(rows), part.predict(rows))
    with torch.no_grad():
        lengths = torch.tensor([len(rows[0])] * len(rows))
        assert torch.equal(whole(torch.tensor(rows), lengths), part(torch.tensor(rows), lengths))
    with pytest.raises(ValueError, match="row 1 holds a word piece that these weights leave out"):
        part.predict([[CLS, 5, SEP], [CLS, 6, SEP]])
    part.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "some.safetensors").read_bytes()
    with pytest.raises(ValueError, match="piece 6 has no embedding here"):
        part.save(tmp_path / "more.safetensors", [5, 6])


def test_missing_weights_say_how_they_are_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"'python -m experiments.text.train --out .*z.safetensors'"):
        Classifier.load(tmp_path / "z.safetensors")
    with pytest.raises(FileNotFoundError, match=r"'python -m experiments.text.reviews --out .*'"):
        Classifier.load(tmp_path / reviews.ENCODER)
    with pytest.raises(FileNotFoundError, match=f"there is no {reviews.TOKENIZER} in .*: give --data"):
        reviews.prepare(tmp_path, tmp_path)


def test_a_network_of_parts_is_the_network(tmp_path: Path) -> None:
    model = tiny()
    model.save(tmp_path / "x.npz")
    model.save(tmp_path / "y.safetensors", part_mib=0.001)
    rows = np.random.default_rng(0).integers(0, TINY.vocabulary, (5, 9))
    one, other = (Classifier.load(tmp_path / name) for name in ("x.npz", "y.safetensors"))
    assert one.shape == other.shape == TINY
    assert np.array_equal(one.predict(rows), other.predict(rows))


def test_weights_beyond_half_precision_are_not_written(tmp_path: Path) -> None:
    for bad in (1e6, math.nan):
        model = tiny()
        with torch.no_grad():
            model.head.bias[0] = bad
        with pytest.raises(ValueError, match=r"classifier\.bias does not fit half precision"):
            model.save(tmp_path / "x.safetensors")


# ------------------------------------------------------------------------------------------------------ the reviews


@given(seed=st.integers(0, 1000), count=st.integers(30, 80))
def test_the_sets_are_disjoint_and_drawn_alike_each_time(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    texts = ["Title: " + " ".join(random.choice(["aa", "bb", "cc", "dd"], 20)) for _ in range(count)]
    texts += ["Another title: " + texts[0].split(": ")[1], "aa: " + texts[1].split(": ")[1]]
    sentences, pieces = random.integers(1, 9, count + 2), random.integers(1, 300, count + 2)
    sentences[:12], pieces[:12] = 2, 254
    able, first, second = reviews.draw(texts, sentences, pieces, (3, 5), seed=1)
    again = reviews.draw(texts, sentences, pieces, (3, 5), seed=1)
    assert all(np.array_equal(a, b) for a, b in zip((able, first, second), again, strict=True))
    assert (len(first), len(second)) == (3, 5)
    assert len({*first.tolist(), *second.tolist()}) == 8
    assert {*first.tolist(), *second.tolist()} <= set(able.tolist())
    bodies = [texts[i].split(": ")[1] for i in range(count)]
    fits = (sentences > 1) & (pieces < 255)
    expected = [i for i in range(count) if fits[i] and bodies[i] not in bodies[:i]]
    assert able.tolist() == expected
    with pytest.raises(ValueError, match="reviews may be drawn, and 1500 are wanted"):
        reviews.draw(texts, sentences, pieces)


def test_reviews_held_out_are_left_out_of_training_with_and_without_their_title() -> None:
    held = [{"text": "Nice: A fine thing, isn't it?"}, {"text": "It broke, at once"}]
    texts = ("a fine thing , is n't it ?", "nice a fine thing is n't it", "it broke at once", "fine")
    fdu = [{"text": text} for text in texts]
    assert reviews.apart(fdu, held) == [fdu[3]]


def test_a_review_knows_its_sentences_and_pieces() -> None:
    one = review([5, 9, 7], [0, 1, 1])
    assert one.structure.widths == (2, 3)
    kept = one.structure.expand([[True, False]], 0)
    assert one.rows(kept).tolist() == [[CLS, 5, MASK, MASK, SEP]]
    with pytest.raises(ValueError, match="masks of width 2 do not fit a review of 3 pieces"):
        one.rows([[True, False]])


@pytest.mark.parametrize("module", [reviews, train])
def test_the_examples_in_the_docstrings(module: Any) -> None:
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    found = doctest.testmod(module, optionflags=flags)
    assert found.attempted > 0
    assert found.failed == 0


# ----------------------------------------------------------------------------------------------------- the training


def made_up(count: int, seed: int) -> reviews.Corpus:
    """Reviews whose label is told by one of two pieces among noise."""
    random = np.random.default_rng(seed)
    labels, lengths = random.integers(0, 2, count), random.integers(3, 25, count)
    rows = [random.integers(10, 90, n) for n in lengths]
    for row, label in zip(rows, labels, strict=True):
        row[random.integers(len(row))] = 7 if label else 8
    return reviews.Corpus(np.concatenate(rows), np.concatenate([[0], np.cumsum(lengths)]), labels)


def test_batches_hold_each_review_once_with_its_edges() -> None:
    corpus = made_up(37, 0)
    rows = train.Rows(corpus, torch.device("cpu"), TINY.positions - 4)
    seen = []
    for batch in rows.by_length(8, np.random.default_rng(0)):
        ids, lengths, labels = rows.batch(batch)
        assert ids.shape[1] % 8 == 0
        for i, n, line, label in zip(batch, lengths.tolist(), ids.numpy(), labels.tolist(), strict=True):
            own = corpus.ids[corpus.offsets[i] : corpus.offsets[i + 1]][: TINY.positions - 6]
            assert line[:n].tolist() == [CLS, *own, SEP]
            assert (line[n:] == PAD).all()
            assert label == corpus.labels[i]
            seen.append(int(i))
    assert sorted(seen) == list(range(37))


def test_only_inner_pieces_are_hidden() -> None:
    torch.manual_seed(0)
    ids, lengths = torch.full((200, 12), 5), torch.full((200,), 9)
    hidden = train.hide(ids, lengths, 0.8) == MASK
    assert not hidden[:, [0, 8, 9, 10, 11]].any()
    assert 0.3 < hidden[:, 1:8].float().mean() < 0.5
    assert not (train.hide(ids, lengths, 0.0) == MASK).any()


def test_training_learns_and_keeps_the_best(tmp_path: Path) -> None:
    torch.manual_seed(0)
    start = Classifier(Shape(140, 32, 24, 48, 3, 1, 2), dropout=0.0)
    with torch.no_grad():
        start.words.weight[90:100] = torch.nan  # pieces that no review holds, as in restricted weights
    device = torch.device("cpu")
    learn, choose = (train.Rows(made_up(n, s), device, 32) for n, s in ((600, 1), (200, 2)))
    before = train.judge(start, choose).mean()
    said: list[str] = []
    recipe = train.Recipe(rate=5e-3, epochs=8, seconds=60, batch=32)
    model, score = train.fine_tune(start, learn, choose, recipe, said.append)
    assert before < 0.7 < 0.95 < score
    assert score == train.judge(model, choose).mean()
    assert score == max(float(line.rpartition("valid ")[2]) for line in said)
    assert torch.isnan(model.words.weight[90:100]).all()
    model.save(tmp_path / "x.safetensors")
    assert train.judge(Classifier.load(tmp_path / "x.safetensors"), choose).mean() == pytest.approx(score, abs=0.01)


# ---------------------------------------------------------------------------------------------------- the real files


def test_gte_small_tells_a_paraphrase_from_another_subject(shared: Path) -> None:
    pytest.importorskip("tokenizers")
    tokenizer = reviews.load_tokenizer(shared / "bert_uncased_tokenizer.json")
    model = Classifier.load(shared / "gte_small_bert_fp16.safetensors")
    texts = [
        "The battery of this camera dies after an hour.",
        "This camera's battery life is about sixty minutes.",
        "The recipe asks for two cups of flour and an egg.",
    ]
    with torch.no_grad():
        states = [model.pooled(torch.tensor([tokenizer.encode(t).ids]))[0] for t in texts]
    a, b, c = (state / state.norm() for state in states)
    assert model.shape == Shape()
    assert float(a @ b) > float(a @ c) + 0.1
    assert float(a @ b) > float(b @ c) + 0.1


def test_the_tokenizer_neither_cuts_nor_pads(shared: Path) -> None:
    pytest.importorskip("tokenizers")
    tokenizer = reviews.load_tokenizer(shared / "bert_uncased_tokenizer.json")
    assert len(tokenizer.encode("good " * 300).ids) == 302
    assert tokenizer.encode("HDTV!").tokens[0] == "[CLS]"
    assert len(tokenizer.encode("good").ids) == 3


@pytest.mark.slow
def test_the_real_reviews_are_prepared(shared: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    bundle = reviews.read_bundle(reviews.prepare(shared, tmp_path))
    assert (len(bundle.train), len(bundle.valid), len(bundle.held)) == (20343, 5494, 6459)
    assert (len(bundle.validation), len(bundle.test)) == (500, 1000)
    assert not {r.number for r in bundle.validation} & {r.number for r in bundle.test}
    tokenizer = reviews.load_tokenizer(shared / "bert_uncased_tokenizer.json")
    corpus = reviews.read_reviews(shared / "amazon_polarity_test_first6459.jsonl.xz")
    for one in bundle.validation + bundle.test:
        assert one.text == corpus[one.number]["text"]
        assert one.label == corpus[one.number]["label"]
        assert tuple(tokenizer.encode(one.text).tokens) == ("[CLS]", *one.pieces, "[SEP]")
        assert one.structure.widths == (len(one.sentences), len(one.ids))
        for j, sentence in enumerate(one.sentences):
            own = [p for p, k in zip(one.pieces, one.owner, strict=True) if k == j]
            assert own == tokenizer.encode(sentence).tokens[1:-1]
        assert "".join(one.text.split()) == "".join("".join(one.sentences).split())
    whole = Classifier.load(shared / "gte_small_bert_fp16.safetensors")
    part = Classifier.load(tmp_path / reviews.ENCODER)
    ids = torch.tensor(bundle.test[0].rows(np.ones(len(bundle.test[0].ids))))
    with torch.no_grad():
        assert torch.equal(whole.pooled(ids), part.pooled(ids))
