"""The classifier that ships with the package, and its tokenizer."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from c2fa.models.local.demo import DemoSentiment, WordPiece

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"

GOOD = [
    "I loved this book, could not put it down!",
    "Works great, my kids love it.",
    "Excellent sound and very easy to set up. Highly recommended.",
    "Best purchase I have made in years",
]
BAD = [
    "The battery died after two days and support never answered.",
    "What a waste of money. It broke the first time I used it.",
    "Boring, badly written, and far too long. Do not buy this.",
    "Very disappointed, I am returning it.",
]
ODD = [
    "",
    " \t\n\u00a0",
    "😀 good👍🏽 x",
    "naïve CAFÉ İstanbul ΣΑΣ ß Å",
    "中文字 test かな 한국어 ไทย",
    "a\x0bb c\x1cd \x85e \x00f",
    "x" * 101 + " y",
    "[MASK]good[MASK] ([MASK]). [mask] [MASK",
    "\u200bzero\u200dwidth\ufeff \ufffd",
    "don't — “quote” … it’s $5.99/month (50% off!!!)",
    "½ x² ﬁ Ⅷ e\u0301 \u0301a",
    "antidisestablishmentarianism qzxv-42nd",
]


@pytest.fixture(scope="module")
def model() -> DemoSentiment:
    return DemoSentiment()


def test_rows_are_probabilities_of_the_named_outputs(model: DemoSentiment) -> None:
    answer = model(GOOD + BAD + ODD)
    assert answer.dtype == np.float64
    assert answer.shape == (len(GOOD + BAD + ODD), len(model.output_names))
    assert ((answer >= 0) & (answer <= 1)).all()
    np.testing.assert_allclose(answer.sum(axis=1), 1, atol=1e-12)
    assert model([]).shape == (0, 2)


def test_plain_reviews_are_told_apart(model: DemoSentiment) -> None:
    positive = model(GOOD + BAD)[:, model.output_names.index("positive")]
    assert (positive[: len(GOOD)] > 0.9).all()
    assert (positive[len(GOOD) :] < 0.1).all()


def test_words_are_not_merely_added_up(model: DemoSentiment) -> None:
    positive = model(["This is good.", "This is not good.", "This is bad.", "This is not bad."])[:, 1]
    logits = np.log(positive / (1 - positive))
    assert positive[0] > 0.5 > positive[1]
    assert positive[3] > positive[2]
    with_good, with_bad = logits[1] - logits[0], logits[3] - logits[2]
    assert abs(with_good - with_bad) > 2  # one and the same word: what it does hangs on the next one
    one = "the plot is dull but the acting is superb"
    other = "the acting is superb but the plot is dull"
    assert model([one])[0, 1] > 0.5 > model([other])[0, 1]  # the same words in another order


def test_a_rows_answer_does_not_depend_on_its_batch(model: DemoSentiment) -> None:
    texts = [" ".join(GOOD * n) for n in range(1, 6)] + GOOD + BAD + ODD + ["fine " * n for n in range(1, 60, 7)]
    whole = model(texts)
    shuffled = np.random.default_rng(0).permutation(len(texts))
    np.testing.assert_allclose(model([texts[i] for i in shuffled]), whole[shuffled], atol=1e-6, rtol=0)
    for i in range(0, len(texts), 5):
        np.testing.assert_allclose(model(texts[i : i + 1]), whole[i : i + 1], atol=1e-6, rtol=0)


def test_a_mask_hides_what_a_word_said(model: DemoSentiment) -> None:
    text = "it is terrible"
    hidden = text.replace("terrible", model.mask_token)
    said, unsaid, nothing = model([text, hidden, " ".join([model.mask_token] * 3)])[:, 1]
    assert said < 0.1
    assert 0.25 < unsaid < 0.85
    assert 0.25 < nothing < 0.85
    assert model(["[MASK] [MASK] great [MASK]"])[0, 1] > 0.8 > 0.2 > model(["[MASK] terrible [MASK]"])[0, 1]


def test_long_texts_are_read_up_to_a_length(model: DemoSentiment) -> None:
    endless = model(["great " * 50_000, "terrible " * 50_000, "x" * 200_000, "!" * 200_000])
    assert endless[0, 1] > 0.9
    assert endless[1, 1] < 0.1
    same = model(["great " * 255 + end for end in ("", "terrible awful " * 40)])
    np.testing.assert_allclose(same[0], same[1], rtol=1e-5)  # rows of one batch may be summed in another order


def test_one_string_is_refused(model: DemoSentiment) -> None:
    with pytest.raises(TypeError, match="list of texts"):
        model("good")


def test_the_runtime_needs_numpy_alone() -> None:
    code = (
        "import sys; before = set(sys.modules); from c2fa.models.local.demo import DemoSentiment; "
        "DemoSentiment()(['good']); print(*{m.split('.')[0] for m in set(sys.modules) - before})"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "numpy" in loaded
    assert not {"torch", "transformers", "tokenizers", "safetensors", "onnxruntime"} & set(loaded)


def test_the_weights_are_small_and_hold_no_pickles() -> None:
    path = Path(sys.modules["c2fa.models"].__file__ or "").parent / "data" / "demo_sentiment.npz"
    assert path.stat().st_size < 6 * 2**20
    with np.load(path, allow_pickle=False) as archive:
        assert all(archive[name].dtype != object for name in archive.files)


def test_wordpiece_takes_the_longest_piece_and_knows_the_mask() -> None:
    pieces = WordPiece(["[UNK]", "[MASK]", "un", "##able", "##a", "unable", "!", "##b"])
    assert pieces.encode("UNABLE unab! unc") == [5, 2, 4, 7, 6, 0]
    assert pieces.encode("un[MASK]un !") == [2, 1, 2, 6]
    assert pieces.encode("un un un", limit=2) == [2, 2]
    assert pieces.words("unab!") == [(2, 4, 7), (6,)]
    assert pieces.encode("unab!") == pieces.encode("unab!")


def test_wordpiece_forgets_rather_than_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("c2fa.models.local.demo.WordPiece.most_remembered", 10)
    pieces = WordPiece(["[UNK]", "[MASK]", *"0123456789", *(f"##{i}" for i in range(10))])
    for i in range(100):
        assert len(pieces.encode(str(i))) == len(str(i))
    assert len(pieces._remembered) <= 10


def reviews() -> list[dict[str, str]]:
    path = SHARED / "amazon_polarity_test_first6459.jsonl.xz"
    if not path.exists():
        pytest.skip("the Amazon-polarity reviews are not beside this checkout")
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_wordpiece_agrees_with_the_tokenizers_library() -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers library is not installed")
    path = SHARED / "bert_uncased_tokenizer.json"
    if not path.exists():
        pytest.skip("BERT's vocabulary is not beside this checkout")
    reference = tokenizers.Tokenizer.from_file(str(path))
    reference.no_truncation()
    reference.no_padding()
    vocabulary = reference.get_vocab()
    ours = WordPiece(sorted(vocabulary, key=vocabulary.__getitem__))
    for text in ODD + [r["text"] for r in reviews()[:500]]:
        assert ours.encode(text) == reference.encode(text, add_special_tokens=False).ids, text


def test_held_out_reviews_are_told_apart(model: DemoSentiment) -> None:
    sample = reviews()[::25]
    right = (model([r["text"] for r in sample])[:, 1] > 0.5) == np.array([r["label"] for r in sample])
    assert right.mean() > 0.89
