"""What a masker knows of each leaf, by which a prior applies to it what other inputs taught; and what the prior did."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from c2fa._system import is_missing, is_real
from c2fa.asking.masking import Masked
from c2fa.showing.printing import printable
from c2fa.solvers.expected import expected_part
from c2fa.structure import FloatArray, Structure

if TYPE_CHECKING:
    from c2fa.explanation import Explanation

Column: TypeAlias = list[str | float | None]
"""A field of every leaf: a text is a category, a number a number, None where nothing is known."""

_WORDS = "words"  # how files call the table of ``WordFields``
# Of all languages at once: the table follows from the words, and they do not say which language they are of.
_WRITTEN = """
    not no never none nor neither nobody nothing nowhere cannot without hardly barely scarcely
    dont doesnt didnt isnt arent wasnt werent cant couldnt wont wouldnt shouldnt havent hasnt hadnt
    nicht kein keine keinen keiner nie niemals ohne ne pas jamais sans nunca non senza não sem niet geen ikke inte
    не нет ни без 不 没 沒
"""
_NEGATIONS = frozenset(_WRITTEN.split())


class Descriptors(Mapping[str, Column]):
    """A table of leaves, field name → one entry for each leaf, that is made and checked when it is first looked at.

    >>> table = Descriptors(lambda: {"colour": ["red", None], "size": np.array([1, np.nan])}, leaves=2)
    >>> dict(table)
    {'colour': ['red', None], 'size': [1.0, None]}
    """

    def __init__(self, make: Callable[[], Mapping[str, Sequence[Any]]], leaves: int) -> None:
        self.make, self.leaves = make, leaves

    @classmethod
    def of(cls, masked: Masked) -> Descriptors | None:
        """What is known of the leaves of an input; None where its masker knows nothing."""
        return None if masked.descriptors is None else cls(masked.descriptors, masked.structure.leaves)

    @cached_property
    def _table(self) -> dict[str, Column]:
        table = self.make()
        if not isinstance(table, Mapping):
            raise TypeError(f"descriptors must be a dict from field to one entry for each leaf, not {table!r:.100}")
        return {str(name): _column(str(name), column, self.leaves) for name, column in table.items()}

    def __getitem__(self, name: str) -> Column:
        return self._table[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return f"Descriptors({self._table!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self._table,)  # what makes it may be unable to travel to another process


def _column(name: str, given: Any, leaves: int) -> Column:
    """A field as plain values, or a sentence about what is wrong with it."""
    entries = None if isinstance(given, str) or not isinstance(given, Collection) else list(given)
    if entries is None or len(entries) != leaves:
        has = repr(given)[:100] if entries is None else f"{len(entries)} entries"
        raise ValueError(
            f"field {name!r} of the descriptors is {has}, and there are {leaves} leaves: give a list with one entry "
            "for each, None where nothing is known"
        )
    # Most entries are plain: a table may have a hundred thousand of them.
    return [e if e is None or (type(e) is str and e.isascii()) else _entry(name, e) for e in entries]


def _entry(name: str, value: Any) -> str | float | None:
    """One entry: a text that every file can hold, or a finite number."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, Real):
        number = float(value)
        return number if np.isfinite(number) else None
    raise TypeError(f"field {name!r} of the descriptors has {value!r:.100}: give a text, a number or None")


# -- tables that several maskers make ----------------------------------------------------------------


def own_fields(names: Sequence[str], values: Sequence[Any]) -> dict[str, list[Any]]:
    """A field for each name, known at the leaves that have this name alone.

    >>> own_fields(["age", "job"], [40.0, "nurse"])
    {'age': [40.0, None], 'job': [None, 'nurse']}
    """
    table: dict[str, list[Any]] = {}
    for leaf, (name, value) in enumerate(zip(names, values, strict=True)):
        table.setdefault(name, [None] * len(names))[leaf] = value
    return table


def known_of(value: Any) -> str | float | None:
    """A cell as a number or a category; times are days.

    >>> [known_of(v) for v in (3, True, "Rome", None, date(1970, 1, 3), timedelta(hours=12), [1, 2])]
    [3.0, 'True', 'Rome', 'missing', 2.0, 0.5, None]
    """
    value = value.item() if isinstance(value, np.generic) else value
    if is_missing(value):
        return "missing"
    if is_real(value) or isinstance(value, Decimal):
        return float(value)
    if isinstance(value, timedelta):
        return value / timedelta(days=1)
    if isinstance(value, datetime):
        own = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return (own - datetime(1970, 1, 1)) / timedelta(days=1)
    if isinstance(value, date):
        return float(value.toordinal() - date(1970, 1, 1).toordinal())
    return category(value)


def category(value: Any) -> str | None:
    """A cell as a category; None of a list or an array, and of a text too long to come again."""
    if is_missing(value):
        return "missing"
    text, is_one = str(value), isinstance(value, str) or not isinstance(value, Sized)
    return text if is_one and len(text) <= 100 else None


@dataclass(frozen=True, eq=False)
class WordFields:
    """Gives what is known of words: themselves, those beside them, whether they are negated, how written and where.

    A word's stem is its first letters: forms of a word begin alike in many languages, and what is known of one form
    says something of the others. How it is written is whether it has capitals, and the mark after it. Its place goes
    from 0 to 1 over all words. A sentence is the smallest part that holds the words. All of it follows from the
    structure, so that files keep none of it.

    >>> words = Structure.from_tree({"Not so good.": ["Not", "so", "good."], "CHEAP!": ["CHEAP!"]})
    >>> for name, column in WordFields(words)().items():
    ...     print(name, column)
    word ['not', 'so', 'good', 'cheap']
    stem ['not', 'so', 'good', 'cheap']
    before [None, 'not', 'so', None]
    after ['so', 'good', None, None]
    pair [None, 'not so', 'so good', None]
    pair_after ['not so', 'so good', None, None]
    negated [None, 'so', 'good', None]
    written ['Aa', 'aa', 'aa.', 'AA!']
    place [0.0, 0.3333333333333333, 0.6666666666666666, 1.0]
    """

    structure: Structure

    def __call__(self) -> dict[str, Column]:
        names, parents = self.structure.names[-1], self.structure.parents
        words = [name.lower() if name.isalnum() else _bare(name) for name in names]
        sentences = parents[-1].tolist() if parents else [0] * len(words)
        follows = [k > 0 and sentences[k - 1] == this for k, this in enumerate(sentences)]
        before = [words[k - 1] if follows[k] else None for k in range(len(words))]
        after = [word if goes_on else None for word, goes_on in zip(words[1:], follows[1:], strict=True)] + [None]
        negated: Column = []
        reach = 0  # words after a negation that it may negate
        for word, goes_on in zip(words, follows, strict=True):
            reach = reach if goes_on else 0
            negated.append(word if reach > 0 else None)
            is_negation = word in _NEGATIONS or word.endswith(("n't", "n’t"))
            reach = 3 if is_negation else reach - 1
        return {
            "word": [*words],
            "stem": [word[:5] for word in words],
            "before": [*before],
            "after": [*after],
            "pair": [None if one is None else f"{one} {word}" for one, word in zip(before, words, strict=True)],
            "pair_after": [None if one is None else f"{word} {one}" for one, word in zip(after, words, strict=True)],
            "negated": negated,
            "written": [_written(name) for name in names],
            "place": [leaf / max(len(words) - 1, 1) for leaf in range(len(words))],
        }


def _written(name: str) -> str:
    """Whether a word has capitals, and the mark at its end.

    >>> [_written(w) for w in ("so", "Good,", "GREAT!", "I", "3", ":)")]
    ['aa', 'Aa,', 'AA!', 'Aa', 'aa', 'aa)']
    """
    mark = name[-1:] if unicodedata.category(name[-1:] or "x")[0] == "P" else ""
    if name.isupper() and len(name) > 1 + len(mark):
        return f"AA{mark}"
    return f"Aa{mark}" if name[:1].isupper() else f"aa{mark}"


def _bare(name: str) -> str:
    """A word in lower case without the punctuation around it; what is punctuation alone stays as it is.

    >>> [_bare(w) for w in ("“Well-made”,", "isn't", ":)", "&quot;Ok&quot;")]
    ['well-made', "isn't", ':)', 'ok']
    """
    word = (html.unescape(name) if "&" in name else name).lower()
    word = word if word.isascii() else printable(word)
    first, last = 0, len(word)
    while first < last and unicodedata.category(word[first])[0] == "P":
        first += 1
    while first < last and unicodedata.category(word[last - 1])[0] == "P":
        last -= 1
    return word[first:last] or word


# -- in files ----------------------------------------------------------------------------------------


def pack(table: Mapping[str, Column], structure: Structure) -> Any:
    """A table as JSON holds it: only its name where it follows from the structure, else only what is known."""
    make = table.make if isinstance(table, Descriptors) else None
    if isinstance(make, WordFields) and make.structure is structure:
        return _WORDS
    packed: dict[str, Any] = {}
    for name, column in table.items():
        known = {str(leaf): entry for leaf, entry in enumerate(column) if entry is not None}
        packed[name] = column if 2 * len(known) > len(column) else known
    return packed


def unpack(packed: Any, structure: Structure) -> Descriptors:
    """The table that ``pack`` was given."""
    if packed == _WORDS:
        return Descriptors(WordFields(structure), structure.leaves)
    places = [str(leaf) for leaf in range(structure.leaves)]

    def table() -> dict[str, Any]:
        return {name: [*map(c.get, places)] if isinstance(c, dict) else c for name, c in packed.items()}

    return Descriptors(table, structure.leaves)


@dataclass(frozen=True, eq=False)
class FromPrior:
    """How much of an explanation is what other inputs taught, or what a scout found.

    Attributes
    ----------
    share
        The share of what the prior expected that this input's answers bear out; 0 where it was ignored or knew nothing
        of the leaves.
    part
        What part of the leaves it is, between 0 and 1, for the target that was explained.
    worth
        The correlation that it had with effects in inputs that it was not learned from; 0 for a scout.
    without
        What ``all_values`` would be without it, from this input's answers alone; None where it knew nothing of the
        leaves.
    scouted, scout_cost
        The rows that a scout was asked, and what they cost where its model counts it: neither is in the explanation's
        own. 0 and None for what was learned.
    """

    share: float
    part: float
    worth: float
    without: tuple[FloatArray, ...] | None = field(repr=False)
    scouted: int = 0
    scout_cost: float | None = None

    def note(self, e: Explanation) -> str:
        """How much of the leaves' values it is, in words."""
        told = f"come from the prior ({str(e.provenance.get('prior', '')).partition(', ')[2]})"
        if e.from_prior is None:
            return f"none of these values {told}: it knows nothing of these {e.level_names[-1]}"
        if self.share == 0.0:
            return f"none of these values {told}: this input's answers do not bear it out"
        part = expected_part(e.low, e.low - e.from_prior[-1])
        return f"{part:.0%} of these values {told}, the rest from this input's own answers"
