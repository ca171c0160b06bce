"""The words, sentences and paragraphs of a text as spans of characters, and the text with some words masked."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable
from functools import cache
from html.entities import html5
from typing import Any, TypeAlias

import numpy as np

from c2fa.structure import BoolArray

Spans: TypeAlias = list[tuple[int, int]]
"""Pairs of start and end, in characters of the text."""

# Only HTML's own elements are tags, because "<user>" and "<unk>" are words of data sets and tokenizers.
_BLOCKS = (
    "address article aside blockquote body caption center dd details div dl dt fieldset figcaption figure footer form "
    "h1 h2 h3 h4 h5 h6 head header hr html legend li main nav ol option p pre section select summary table tbody td "
    "textarea tfoot th thead title tr ul"
)
_ELEMENTS = (
    f"{_BLOCKS} a abbr acronym audio b base bdi bdo big br button canvas cite code col colgroup data del dfn em embed "
    "font i iframe img input ins kbd label link map mark meta meter noscript object output param picture progress q rp "
    "rt ruby s samp small source span strike strong sub sup svg template time track tt u var video wbr"
)
_TAG = re.compile(
    r"<!--.*?-->|<!doctype[^<>]*>|<(script|style)\b[^<>]*>.*?</\1\s*>"
    rf"|</?({'|'.join(_ELEMENTS.split())})(?:\s[^<>]*)?/?>",
    re.IGNORECASE | re.DOTALL,
)
_ENTITY = re.compile(
    r"(?P<before>\w?)(?P<entity>&(?:[a-zA-Z]\w{1,31}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});)(?=(?P<after>\w?))"
)


@cache
def _pattern() -> re.Pattern[str]:
    """The pattern of a word, made at first use because it looks through two planes of Unicode for marks."""
    # Scripts that are written without spaces, as ranges inside a character class.
    han = "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    hiragana = "\u3041-\u309f"
    katakana = "\u30a0-\u30ff\u31f0-\u31ff\uff66-\uff9f"
    thai_lao = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece"
    leading_vowel, following = (
        "\u0e40-\u0e44\u0ec0-\u0ec4",
        "\u0e30-\u0e3a\u0e45-\u0e4e\u0eb0-\u0ebc\u0ec6-\u0ece",
    )
    khmer_burmese = "\u1000-\u103f\u1780-\u17d3"

    picture = (
        "\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u25aa-\u27bf\u2934\u2935\u2b00-\u2bff\u3030\u303d"
        "\u3297\u3299\U0001f000-\U0001fbff"
    )
    picture_tail = "[\ufe0e\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*"
    emoji = (
        "[\U0001f1e6-\U0001f1ff]{2}|[0-9#*]\ufe0f?\u20e3"
        f"|[{picture}]{picture_tail}(?:\u200d[{picture}]{picture_tail})*"
    )
    emoticon = r"(?<!\w)[:;=]['’^o-]?[)(\[\]DPpOo3/\\|*]+(?!\w)"
    ends = r"\s.,;:!?…)\]}>\"'”’»。、！？"
    address = rf"(?:https?://|www\.)\S*[^{ends}]|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    other_tag = r"</?[a-zA-Z][\w-]*\s*/?>"
    gap = r"\s\u200b\ufeff"
    kinds: dict[str, list[int]] = {"open": [], "mark": []}
    for code in range(0x20000):
        category = unicodedata.category(chr(code))
        if category in ("Ps", "Pi"):
            kinds["open"].append(code)
        elif category[0] in "PS" and code != ord("_"):
            kinds["mark"].append(code)
    openers, marks = _class(kinds["open"]) + "¿¡\"'#@$€£¥", _class(kinds["mark"] + kinds["open"])
    closers = _class(kinds["mark"])
    apart = han + hiragana + katakana + thai_lao + khmer_burmese
    letter = f"[^{gap}{marks}{apart}]"
    cores = (
        address,
        other_tag,
        emoji,
        # One joining mark between letters keeps don't, state-of-the-art, e.g., 3.14 and and/or whole.
        rf"{letter}+(?:(?:[-'’ʼ·.,:&@/‐‑]|\.['’]){letter}+)*",
        f"[{han}]",
        f"[{hiragana}]+",
        f"[{katakana}]+",
        f"[{leading_vowel}]?[{thai_lao}][{following}]*",
        # A letter, the marks on it, and whatever is stacked beneath it.
        "[\u1000-\u103f\u1780-\u17d3](?:[\u102b-\u103e\u17b4-\u17d1]|[\u1039\u17d2].)*",
    )
    word = f"[{openers}]*(?:{'|'.join(cores)})(?:(?![{picture}])[{closers}])*"
    lone = f"(?:(?![{picture}])[{marks}])+"
    return re.compile(rf"{emoticon}|{word}|{lone}|[^{gap}]")


def _class(codes: list[int]) -> str:
    """Write code points as the inside of a character class."""
    ranges: list[list[int]] = []
    for code in sorted(codes):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(re.escape(chr(a)) + ("" if a == b else "-" + re.escape(chr(b))) for a, b in ranges)


def words(text: str) -> Spans:
    """Split a text into words, with nothing but white space between them.

    Punctuation goes with the word it touches (an opening bracket or quote with the word after it, anything
    else with the word before); marks that stand alone, emoticons and emoji are words. Chinese characters
    are words one by one, Japanese kana in runs, Thai, Lao, Khmer and Burmese by written syllable. HTML's tags count
    as white space, and its entities as the characters that they stand for.

    >>> text = 'Dr. Lee said: "It isn\\'t bad :)" (see https://a.org/b).'
    >>> [text[a:b] for a, b in words(text)]
    ['Dr.', 'Lee', 'said:', '"It', "isn't", 'bad', ':)', '"', '(see', 'https://a.org/b).']
    """
    return [match.span() for match in _pattern().finditer(without_markup(text))]


def tags(text: str) -> Spans:
    """Where the HTML tags and comments of a text are.

    >>> tags("so <b>good</b>!")
    [(3, 6), (10, 14)]
    """
    return [match.span() for match in _TAG.finditer(text)] if "<" in text else []


def without_markup(text: str) -> str:
    """A text of the same length in which HTML is what a browser shows: tags are blanks, entities characters.

    >>> without_markup("<p>so&nbsp;<b>good</b>, isn&#39;t it")
    '\\n\\n so         good    , isnxxxxxt it'
    """

    def blanks(tag: re.Match[str]) -> str:
        """As many blanks as a tag is long; a blank line where it begins or ends a block, a new line for <br>."""
        name, size = (tag[2] or "").lower(), len(tag[0])
        breaks = {"br": 1}.get(name, 2 if name in _BLOCKS.split() else 0)
        return ("\n" * breaks).ljust(size)

    def character(match: re.Match[str]) -> str:
        """The character of an entity as often as the entity is long; letters where it belongs to a word."""
        entity = match["entity"]
        if entity[1] != "#" and entity[1:] not in html5:
            return match[0]
        own = html.unescape(entity)[:1]
        if own.isspace():
            own = " "
        elif unicodedata.category(own)[0] != "P" or (match["before"] and match["after"] and own in "'’-‐&.·/"):
            own = "x"
        return match["before"] + own * len(entity)

    if "<" in text:
        text = _TAG.sub(blanks, text)
    return _ENTITY.sub(character, text) if "&" in text else text


# sentencex stops at some rare separators and at lone surrogates; blanks of the same length keep its indices.
_BLANK = str.maketrans(
    {chr(c): " " for c in [*range(32), *range(0x7F, 0x3001)] if c != 10 and (c < 32 or chr(c).isspace())}
    | dict.fromkeys("\u200b\ufeff", " ")
    | {chr(c): "x" for c in range(0xD800, 0xE000)}  # a letter, because a question mark would end a sentence
)


def check_language(language: Any) -> None:
    """Refuse a language that is neither a code of ISO 639-1 nor of three letters, which sentencex takes for English."""
    if not isinstance(language, str):
        raise TypeError(f"language must be the code of a language, such as 'en'; got {language!r}")
    codes = (
        "aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee "
        "el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io "
        "is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn "
        "mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se "
        "sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo "
        "wa wo xh yi yo za zh zu"
    )
    of_two_letters = codes.split()
    if language not in of_two_letters and not re.fullmatch("[a-z]{3}", language):
        meant = language[:2].lower()
        near = f"; did you mean {meant!r}?" if meant in of_two_letters else ""
        raise ValueError(f"language must be the code of a language, such as 'en' or 'zh'; got {language!r}{near}")


def sentence_starts(text: str, language: str) -> list[int]:
    """Where the sentences of a text begin, by sentencex; a fence of Markdown is one."""
    from sentencex import get_sentence_boundaries  # here, so that importing c2fa loads numpy and scipy alone

    shown = without_markup(text).translate(_BLANK)
    return _around_fences(text, [int(b["start_index"]) for b in get_sentence_boundaries(language, shown)])


def paragraph_starts(text: str) -> list[int]:
    """Where the paragraphs of a text begin: at the start and after each blank line, or block of HTML.

    >>> paragraph_starts("one\\ntwo\\n \\nthree")
    [0, 10]
    """
    blank_lines = re.finditer(r"\n[^\S\n]*\n\s*", without_markup(text))
    return _around_fences(text, [0, *(match.end() for match in blank_lines)])


def _around_fences(text: str, starts: list[int]) -> list[int]:
    """The starts of pieces, changed so that each Markdown fence (code between lines of ``` or ~~~) is one piece.

    A fence that is never closed goes to the end of the text.

    >>> _around_fences("So:\\n```\\na. b.\\n```\\nYes.", [0, 8, 15])
    [0, 4, 18]
    """
    fences = [
        (match.start(), match.end())
        for match in re.finditer(r"^ {0,3}(```+|~~~+)[^`\n]*$(?s:.*?)(?:^ {0,3}\1[^\S\n]*$|\Z)\s*", text, re.MULTILINE)
    ]
    if not fences:
        return starts
    cuts = {edge for fence in fences for edge in fence if edge < len(text)}
    return sorted(cuts | {start for start in starts if not any(a < start < b for a, b in fences)})


def replacer(gaps: list[str], leaves: list[str], mask: str) -> Callable[[BoolArray], list[str]]:
    """A function from masks to texts with ``mask`` in place of each masked leaf."""
    masked = [mask + gap for gap in gaps[1:]]
    kept = [leaf + gap for leaf, gap in zip(leaves, gaps[1:], strict=True)]
    masked[0], kept[0] = gaps[0] + masked[0], gaps[0] + kept[0]
    table = np.array(masked + kept, dtype=object)
    columns, width = np.arange(len(leaves)), np.intp(len(leaves))

    def render(masks: BoolArray) -> list[str]:
        return list(map("".join, table.take(masks * width + columns).tolist()))

    return render


def remover(gaps: list[str], leaves: list[str], fixed: BoolArray) -> Callable[[BoolArray], list[str]]:
    """A function from masks to texts without the masked leaves; ``fixed`` leaves are always kept.

    Between two kept leaves stands the strongest of the gaps that lay between them: a blank line, a line break, a space.
    """
    strength = np.array([bool(gap) + ("\n" in gap) + bool(re.search(r"\n[^\S\n]*\n", gap)) for gap in gaps[:-1]])
    index = np.arange(len(leaves))
    strength[0] = 0
    # latest[s - 1][j]: the last gap of strength s or more at or before leaf j; -1 where there is none.
    latest = [np.maximum.accumulate(np.where(strength >= s, index, -1)) for s in (1, 2, 3) if (strength >= s).any()]
    gap_table, leaf_table = np.array([*gaps[:-1], ""], dtype=object), np.array(leaves, dtype=object)
    end = len(leaves)

    def render(masks: BoolArray) -> list[str]:
        if fixed.any():
            keep = np.ones((len(masks), end), dtype=np.bool_)
            keep[:, ~fixed] = masks
            masks = keep
        at = np.nonzero(masks)[1]
        counts = np.count_nonzero(masks, axis=1)
        stops = np.cumsum(counts)
        firsts = (stops - counts)[counts > 0]
        before = np.empty_like(at)
        before[1:] = at[:-1]
        gap = np.full_like(at, end)
        for last in latest:
            candidate = last[at]
            np.copyto(gap, candidate, where=candidate > before)
        gap[firsts] = np.where(at[firsts] == 0, 0, end)
        pieces = np.empty(2 * len(at), dtype=object)
        pieces[0::2], pieces[1::2] = gap_table[gap], leaf_table[at]
        flat = pieces.tolist()
        texts = ["".join(flat[2 * (b - n) : 2 * b]) for n, b in zip(counts.tolist(), stops.tolist(), strict=True)]
        if gaps[-1]:
            for i in np.flatnonzero(masks[:, -1]).tolist():
                texts[i] += gaps[-1]
        return texts

    return render
