"""Texts: nothing is lost, words are what people take for words, and removal reads naturally."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from c2fa.maskers import Text
from c2fa.maskers._words import paragraph_starts, sentence_starts, without_markup, words

ALL = ("paragraphs", "sentences", "words")
# Characters that splitters stumble over, more often than chance would bring them.
TRICKY = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from(
            list(
                " \n\r\t.!?'\"()[]{}-—:/@#_…。、「」日本ひカ한ไทขမន😀👨👩🏽🇫🇷1é\u0301\u200d\ufe0f\u20e3"
                "\u200b\ufeff\u2028\u2029\x85\xa0\x00\x1c\ud800\udfff"
                "`~"
            )
        ),
    ),
    max_size=60,
)


def full(masked, level=-1):
    return masked.inputs(np.ones((1, masked.structure.widths[level]), dtype=bool), level)[0]


@settings(max_examples=400, deadline=None)
@given(TRICKY, st.sampled_from(["en", "ja", "ar", "de"]), st.sampled_from(["[MASK]", None]))
def test_any_text_comes_back_byte_for_byte(text, language, mask):
    spans, read = words(text), without_markup(text)
    gaps = [read[a:b] for a, b in zip([0, *(e for _, e in spans)], [*(s for s, _ in spans), len(read)], strict=True)]
    assert all(not gap.strip().strip("\u200b\ufeff").strip() for gap in gaps), "only white space is between words"
    assert all(a < b for a, b in spans)
    if not spans:
        with pytest.raises(ValueError, match="no words"):
            Text()(text)
        return
    masked = Text(ALL, language, mask)(text)
    for level in range(3):
        assert full(masked, level) == text
    assert masked.structure.names[-1] == tuple(text[a:b] for a, b in masked.view.spans)


@settings(max_examples=200, deadline=None)
@given(TRICKY.filter(lambda t: bool(words(t))), st.integers(0, 2**32))
def test_removal_is_what_a_slow_loop_makes_of_it(text, seed):
    masked = Text("words", mask=None)(text)
    spans = masked.view.spans.tolist()
    mask = np.random.default_rng(seed).random((1, len(spans))) < 0.5
    expected, last = "", None
    for i, ((a, b), on) in enumerate(zip(spans, mask[0], strict=True)):
        if on:
            if i == 0:
                expected += text[:a]
            elif last is not None:
                gaps = [text[spans[k][1] : spans[k + 1][0]] for k in range(last, i)]
                expected += max(reversed(gaps), key=strength)
            expected += text[a:b]
            last = i
    if mask[0, -1]:
        expected += text[spans[-1][1] :]
    assert masked.inputs(mask, 0) == [expected]


def strength(gap):
    return 3 if re.search(r"\n[^\S\n]*\n", gap) else 2 if "\n" in gap else 1 if gap else 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, world! It's fine.", ["Hello,", "world!", "It's", "fine."]),
        (
            "e.g. the U.S.A.'s state-of-the-art, 3.14% of $5,000.00",
            ["e.g.", "the", "U.S.A.'s", "state-of-the-art,", "3.14%", "of", "$5,000.00"],
        ),
        (
            "(really) “quoted” word—word yes/no ¿qué?",
            ["(really)", "“quoted”", "word—", "word", "yes/no", "¿qué?"],
        ),
        ("see https://a.org/b?c=1. or me@mail.org!", ["see", "https://a.org/b?c=1.", "or", "me@mail.org!"]),
        ("bad :( good :-D __init__ C++", ["bad", ":(", "good", ":-D", "__init__", "C++"]),
        ("great!👨‍👩‍👧‍👦👍🏽🇫🇷🇩🇪1️⃣❤️ ok", ["great!", "👨‍👩‍👧‍👦", "👍🏽", "🇫🇷", "🇩🇪", "1️⃣", "❤️", "ok"]),
        ("今天很好。去「公园」！", ["今", "天", "很", "好。", "去", "「公", "园」！"]),
        ("これはペンです。", ["これは", "ペン", "です。"]),
        ("ไปโรงเรียน", ["ไป", "โร", "ง", "เรี", "ย", "น"]),
        ("हिन्दी में लिखा है।", ["हिन्दी", "में", "लिखा", "है।"]),
        ("مرحبا بالعالم، كيف؟ می‌خواهم", ["مرحبا", "بالعالم،", "كيف؟", "می‌خواهم"]),
        ("안녕 세계! re\u0301sume\u0301", ["안녕", "세계!", "re\u0301sume\u0301"]),
        ("a ... * b ( c )", ["a", "...", "*", "b", "(", "c", ")"]),
    ],
)
def test_words_in_many_languages(text, expected):
    assert [text[a:b] for a, b in words(text)] == expected


def test_sentences_and_paragraphs():
    text = "Dr. Smith paid $3.50 to J. Doe. Was it fair?\nYes!\n \n\nA second paragraph. The end."
    masked = Text(ALL)(text)
    assert masked.structure.names[0] == (
        "Dr. Smith paid $3.50 to J. Doe. Was it fair? Yes!",
        "A second paragraph. The end.",
    )
    assert masked.structure.names[1] == (
        "Dr. Smith paid $3.50 to J. Doe.",
        "Was it fair?",
        "Yes!",
        "A second paragraph.",
        "The end.",
    )
    assert paragraph_starts("a") == [0]


@settings(max_examples=200, deadline=None)
@given(TRICKY)
def test_sentence_starts_are_places_in_the_text(text):
    starts = sentence_starts(text, "en")
    assert starts == sorted(starts)
    assert all(0 <= s < len(text) for s in starts)


HTML = (
    "<p>This was <b>really great</b>, don&#39;t you think? It cost &pound;3<br /><br />"
    'The &quot;end&quot; &amp; more</p>\n<p class="x">See <a href="https://a.org/b?c=d">AT&amp;T</a>.</p>'
)


def test_tags_stay_whole_where_they_are_and_entities_are_characters():
    paragraphs, sentences, leaves = Text(ALL)(HTML).structure.names
    assert leaves == (
        *("This", "was", "really", "great", ",", "don&#39;t", "you", "think?", "It", "cost", "&pound;3"),
        *("The", "&quot;end&quot;", "&amp;", "more", "See", "AT&amp;T", "."),
    )
    assert paragraphs[1:] == ("The &quot;end&quot; &amp; more", "See AT&amp;T.")
    assert sentences[0] == "This was really great, don&#39;t you think?"
    assert words("a <user> <unk>") == [(0, 1), (2, 8), (9, 14)], "only HTML's own elements are tags"


class Balanced(HTMLParser):
    """Raises where an element ends that is not open."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.feed(text)
        self.close()
        assert not self.open, text

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("mask", ["[MASK]", None])
def test_masked_markup_is_valid_and_words_do_not_grow_together(mask):
    masked = Text(mask=mask)(HTML)
    masks = np.random.default_rng(0).random((50, masked.structure.leaves)) < 0.5
    masks[:2] = [[True], [False]]
    batch = masked.inputs(masks, 1)
    assert batch[0] == HTML
    markup = re.compile(r"<[^>]*>")
    for row, text in zip(masks, batch, strict=True):
        Balanced(text)
        assert markup.findall(text) == markup.findall(HTML)
        shown = [word for word in re.split(r"<[^>]*>|\s", text) if word not in ("", mask)]
        plain = [name for name, kept in zip(masked.structure.names[1], row, strict=True) if kept]
        assert "".join(shown).replace("[MASK]", "") == "".join(plain)
        assert all(word.replace("[MASK]", "") in plain for word in shown)


def test_a_tokenizer_may_take_tags_for_words():
    with_tags = Text(tokenizer=lambda text: [m.span() for m in re.finditer(r"<[^>]*>|\w+", text)], mask=None)
    masked = with_tags("<b>so</b> good")
    assert masked.structure.names[-1] == ("<b>", "so", "</b>", "good")
    assert masked.inputs([[False, True, False, True]], 1) == ["so good"]


def test_removal_keeps_the_strongest_break():
    masked = Text("words", mask=None)("One two.\n\nThree—four five\nsix")
    assert masked.structure.names[0] == ("One", "two.", "Three—", "four", "five", "six")

    def without(*words_off):
        return masked.inputs(np.array([[n not in words_off for n in masked.structure.names[0]]]), 0)[0]

    assert without("two.") == "One\n\nThree—four five\nsix"
    assert without("One") == "two.\n\nThree—four five\nsix"
    assert without("Three—") == "One two.\n\nfour five\nsix"
    assert without("two.", "Three—", "four") == "One\n\nfive\nsix"
    assert without("five", "six") == "One two.\n\nThree—four"
    assert without("One", "two.", "Three—") == "four five\nsix"
    assert without(*masked.structure.names[0]) == ""
    tight = Text("words", mask=None)("foo a—b")
    assert tight.inputs([[True, False, True]], 0) == ["foo b"]


def test_pairs_keep_their_texts_apart():
    masked = Text()(("A man eats. He sits.", "Nobody eats."))
    assert masked.structure.names[0] == ("A man eats.", "He sits.", "Nobody eats.")
    assert masked.inputs([[True, False, False]], 0) == [("A man eats. [MASK] [MASK]", "[MASK] [MASK]")]
    assert masked.view.text.split("\n") == ["A man eats. He sits.", "Nobody eats."]
    texts = Text(("texts", "words"))({"premise": "A man eats. He sits.", "hypothesis": "Nobody eats."})
    assert texts.structure.widths == (2, 7)
    assert texts.inputs([[False, True]], 0) == [
        {"premise": "[MASK] [MASK] [MASK] [MASK] [MASK]", "hypothesis": "Nobody eats."}
    ]
    assert Text()(["One. Two.", "Three."]).inputs([[True, True, False]], 0) == [["One. Two.", "[MASK]"]]


@pytest.fixture(scope="module")
def wordpiece():
    pytest.importorskip("tokenizers")
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    vocabulary = ["[UNK]", "[MASK]", "i", "love", "m", "##tv", "mus", "##ic", ".", "!"]
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def test_word_pieces_of_a_tokenizer_are_the_leaves(wordpiece):
    transformers = pytest.importorskip("transformers")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=wordpiece, unk_token="[UNK]", mask_token="[MASK]")
    for tokenizer in (wordpiece, fast):
        masked = Text(tokenizer=tokenizer, mask=fast.mask_token)("I love MTV. Music!")
        assert masked.structure.names[1] == ("I", "love", "M", "TV", ".", "Mus", "ic", "!")
        assert masked.inputs([[True, True, True, False, True, False, False, True]], 1) == [
            "I love M[MASK]. [MASK][MASK]!"
        ]
    assert Text(tokenizer=wordpiece).tokenizer_id == Text(tokenizer=wordpiece).tokenizer_id
    assert len({Text(tokenizer=t).tokenizer_id for t in (None, wordpiece, fast, words)}) == 4


def test_byte_level_pieces_neither_hold_spaces_nor_overlap():
    pytest.importorskip("tokenizers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    alphabet = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(alphabet, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text = "a é 😀b"
    masked = Text("words", tokenizer=tokenizer)(text)
    assert masked.structure.names[0] == ("a", "é", "😀", "b")
    assert full(masked) == text


def test_a_document_of_fifty_thousand_words():
    sentence = "It was a long, dull evening and nobody said much about it. "
    text = "\n\n".join([sentence * 10] * 417)
    begin = time.perf_counter()
    masked = Text(ALL)(text)
    assert masked.structure.widths == (417, 4170, 50_040)
    batch = masked.inputs(np.random.default_rng(0).random((8, 417)) < 0.5, 0)
    assert full(masked) == text
    assert len(batch) == 8
    assert time.perf_counter() - begin < 20


@pytest.mark.parametrize(
    ("levels", "leaves"),
    [
        (("documents",), ["a", "b"]),
        (("documents", "paragraphs"), ["One. Two.", "Three.", "Four. Five."]),
        (("documents", "sentences"), ["One.", "Two.", "Three.", "Four.", "Five."]),
        (("paragraphs", "sentences"), ["One.", "Two.", "Three.", "Four.", "Five."]),
    ],
)
def test_leaves_may_be_larger_than_words_and_texts_have_the_names_of_their_keys(levels, leaves):
    masked = Text(levels, mask=None)({"a": "One. Two.\n\n Three.", "b": " Four. Five."})
    assert list(masked.structure.names[-1]) == leaves
    if levels[0] == "documents":
        assert masked.structure.names[0] == ("a", "b")
    kept = np.zeros((1, len(leaves)), dtype=bool)
    kept[0, -1] = True
    [row] = masked.inputs(kept, masked.structure.depth - 1)
    assert row["a"] == ""
    assert row["b"].strip() == ("Four. Five." if leaves[-1] != "Five." else "Five.")


def test_what_is_refused():
    with pytest.raises(ValueError, match="levels must be some of"):
        Text(("words", "sentences"))
    with pytest.raises(ValueError, match="levels must be some of"):
        Text(("sentences", "letters"))
    with pytest.raises(ValueError, match="mask=None to remove"):
        Text(mask="")
    with pytest.raises(TypeError, match="tokenizer must be"):
        Text(tokenizer=3)
    with pytest.raises(ValueError, match="no words in"):
        Text()(" \n ")
    for x in (3, Path("a"), [], {"a": 1}):
        with pytest.raises(TypeError, match="must be a text"):
            Text()(x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": None}, r"levels must be some of .*, such as \('sentences', 'words'\); got None"),
        ({"language": None}, "language must be the code of a language, such as 'en'; got None"),
        ({"mask": 5}, "mask must be a text, or None to remove masked words; got 5"),
    ],
)
def test_an_option_of_another_type_is_refused_in_one_sentence(options, message):
    with pytest.raises(TypeError, match=message):
        Text(**options)
