"""Citations as answers and programs have them: markers in the text, or what a model's interface hands over as dicts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

Citations: TypeAlias = Any
"""Whatever ``read_citations`` makes claims of."""

_MARKER = re.compile(r"\s*(?:\[(?P<square>[^\[\]\n]{1,2000})\](?!\()|【(?P<wide>[^【】\n]{1,2000})】)")
_SOURCE = re.compile(r"\s*[(\[]\s*sources?:\s*(?P<named>[^()\[\]\n]{1,2000})[)\]]", re.IGNORECASE)
_RANGE = re.compile(r"(\d{1,4})\s*[-–]\s*(\d{1,4})")
_NAMES = ("id", "source", "url", "uri", "title", "document_title", "document_id", "file_id", "filename", "file_name")
_PLACES = ("document_index", "search_result_index")  # counted from 0


@dataclass(frozen=True)
class Claim:
    """That a part of an answer rests on a source.

    ``start`` and ``end`` are its place in the answer without markers; ``source`` is a document's id, or what was cited
    where no document is called so, and then ``exists`` is False.
    """

    start: int
    end: int
    source: str
    exists: bool = True


@dataclass(frozen=True)
class Marked:
    """An answer without its markers, and what it cites.

    Markers are left out of what a model is asked about: a document that is removed takes its number with it, so that
    ``[3]`` would become unlikely, and a citation that nothing rests on would look as if it were used.
    """

    text: str
    claims: tuple[Claim, ...]


def read_citations(answer: Any, citations: Citations, metadata: Mapping[str, Mapping[str, Any]]) -> Marked:
    """What an answer cites: by its markers, or by citations that are given.

    Both are as ``c2fa.verify`` takes them; ``metadata`` is what is known of the documents, by their ids, in order.

    >>> marked = read_citations("Bern is the capital [2]. It has bears.[1]", None, {"rivers": {}, "cities": {}})
    >>> marked.text, [(marked.text[c.start : c.end], c.source) for c in marked.claims]
    ('Bern is the capital. It has bears.', [('l', 'cities'), ('.', 'rivers')])
    """
    answer = getattr(answer, "content", answer)
    blocks = [answer] if isinstance(answer, str) or not isinstance(answer, Sequence) else list(answer)
    texts = [block.get("text", "") if isinstance(block, Mapping) else block for block in blocks]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"the answer must be a text, or a list of blocks of text; got {answer!r}")
    text, found = "".join(texts), list[tuple[int, int, list[Any]]]()
    for k, block in enumerate(blocks):
        start = sum(map(len, texts[:k]))
        for given in block.get("citations") or block.get("annotations") or () if isinstance(block, Mapping) else ():
            # Offsets count within a block; a citation without any is of the whole block.
            found += [(start + a, start + b, names) for a, b, names in _of_a_dict(given, texts[k])]
    if citations is not None:
        found += chain.from_iterable(_given(one, text) for one in _listed(citations))
    sources = _Sources(metadata)
    markers = list(_markers(text, sources))
    edges = [0, *(edge for a, b, _ in markers for edge in (a, b)), len(text)]
    plain = "".join(text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True))
    ahead = len(plain) - len(plain.lstrip())

    def place(at: int) -> int:
        """A place of the answer in what is left of it."""
        return max(at - sum(min(at, b) - a for a, b, _ in markers if a < at) - ahead, 0)

    if citations is None and not found:
        found = [(a, a, [source]) for a, _, named in markers for source, _ in named]
    claims = []
    for a, b, names in found:
        start, end = place(a), max(place(b), 1)
        # What is of no letter, as a marker, is of what stands before it.
        claims.append(Claim(min(start, end - 1), end, *sources.first(names)))
    return Marked(plain.strip(), tuple(dict.fromkeys(claims)))


@dataclass(frozen=True)
class _Sources:
    """The documents, by all names that a citation may call them by."""

    metadata: Mapping[str, Mapping[str, Any]]

    def named(self, name: Any) -> str | None:
        """The id of the document that is called so, or has this number."""
        wanted = str(name).strip().casefold()
        for own in self.metadata:
            if wanted == own.casefold():
                return own
        names = {own: {str(about.get(k)).casefold() for k in _NAMES} for own, about in self.metadata.items()}
        alike = [own for own in names if wanted in names[own]]
        if len(alike) == 1:
            return alike[0]
        counted = re.fullmatch(r"(?:\^|doc(?:ument)?\.?\s*|source\s*)?(\d{1,4})(?:[:†].*)?", wanted)
        if counted:
            return self.at(int(counted[1]) - 1)
        from_0 = re.fullmatch(r"doc[_:](\d{1,4})", wanted)  # as Cohere calls documents that have no id
        return self.at(int(from_0[1])) if from_0 else None

    def at(self, place: int) -> str | None:
        """The id of a document by its place, counted from 0."""
        return list(self.metadata)[place] if 0 <= place < len(self.metadata) else None

    def first(self, names: Sequence[Any]) -> tuple[str, bool]:
        """The document that one of these names is of; what was cited where it is none."""
        found = (self.at(name) if isinstance(name, int) else self.named(name) for name in names)
        return next(((own, True) for own in found if own is not None), (str(names[0]), False))


def _markers(text: str, sources: _Sources) -> Iterator[tuple[int, int, list[tuple[str, bool]]]]:
    """Where the markers of a text begin and end, and the sources that each names."""
    last = 0
    for match in sorted([*_MARKER.finditer(text), *_SOURCE.finditer(text)], key=lambda m: (m.start(), -m.end())):
        if match.start() < last:
            continue
        groups = match.groupdict()
        inside = groups.get("named") or groups.get("square") or groups.get("wide") or ""
        parts = [inside] if sources.named(inside) else [part for part in re.split(r"[,;]", inside) if part.strip()]
        found = []
        for part in map(str.strip, parts):
            run = _RANGE.fullmatch(part)
            names = map(str, range(int(run[1]), min(int(run[2]), int(run[1]) + 99) + 1)) if run else [part]
            found += [sources.first([name]) for name in names]
        # A number, or what is said to be a source, is a citation even where there is no such document; [sic] is not.
        if "named" in groups or any(exists for _, exists in found) or all(name.isdigit() for name, _ in found):
            last = match.end()
            yield match.start(), last, found


def _listed(citations: Any) -> list[Any]:
    """Each citation by itself."""
    if isinstance(citations, Mapping):
        for name in ("grounding_metadata", "groundingMetadata", "citationMetadata", "citation_metadata"):
            citations = citations.get(name, citations)
        supports = citations.get("grounding_supports", citations.get("groundingSupports"))
        if supports is not None:
            chunks = citations.get("grounding_chunks", citations.get("groundingChunks")) or []
            return [{**support, "chunks": chunks} for support in supports]
        citations = citations.get("citations", citations.get("citationSources", [citations]))
    if isinstance(citations, str) or not isinstance(citations, Iterable):
        raise TypeError(
            "citations must be a list of pairs, such as ('a statement of the answer', 'a document'), or of a model's "
            f"citations as dicts; got {citations!r}"
        )
    return list(citations)


def _given(one: Any, answer: str) -> Iterator[tuple[int, int, list[Any]]]:
    """The place in the answer and the names of the source of one citation."""
    if isinstance(one, Mapping):
        yield from _of_a_dict(one, answer)
    elif isinstance(one, tuple | list) and len(one) == 2:
        place, source = one
        if source is None:
            raise ValueError(f"a citation names no source: {one!r}; name a document")
        if isinstance(place, str):
            yield *_found(place, answer), [str(source)]
        elif isinstance(place, tuple | list) and len(place) == 2 and all(isinstance(n, int) for n in place):
            start, end = place
            if not 0 <= start < end <= len(answer):
                raise ValueError(
                    f"the span {tuple(place)} is not inside the answer, which has {len(answer)} characters"
                )
            yield start, end, [str(source)]
        else:
            raise TypeError(f"a citation's place must be a text of the answer, or its (start, end); got {place!r}")
    else:
        raise TypeError(f"a citation must be a pair of a place in the answer and a source, or a dict; got {one!r}")


def _found(text: str, answer: str) -> tuple[int, int]:
    start = answer.find(text)
    if start < 0 or not text.strip():
        raise ValueError(f"the answer does not hold {text!r}, which a citation is of; copy it from the answer")
    return start, start + len(text)


def _of_a_dict(one: Mapping[str, Any], answer: str) -> Iterator[tuple[int, int, list[Any]]]:
    """A citation of LangChain, Anthropic, Cohere, Gemini or OpenAI; what they nest is read as if it were not nested."""
    nested = [
        one[key] for key in ("url_citation", "file_citation", "segment", "extras") if isinstance(one.get(key), Mapping)
    ]
    fields = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower(): v for part in (*nested, one) for key, v in part.items()}
    start, end = fields.get("start_index", fields.get("start")), fields.get("end_index", fields.get("end"))
    text = fields.get("statement", fields.get("text"))
    if "chunks" in fields and end is not None:  # Gemini counts bytes
        start, end = (len(answer.encode()[: at or 0].decode(errors="ignore")) for at in (start, end))
    if end is None and isinstance(fields.get("index"), int):  # OpenAI's file citations have the place of the marker
        start, end = max(fields["index"] - 1, 0), fields["index"]
    if end is None:
        start, end = _found(text, answer) if isinstance(text, str) else (0, len(answer))
    groups: list[list[Any]] = []
    for key in ("grounding_chunk_indices", "document_ids", "sources"):
        for item in fields.get(key) or ():
            if key == "grounding_chunk_indices":
                chunk = fields["chunks"][item]
                item = chunk.get("retrieved_context") or chunk.get("retrievedContext") or chunk.get("web") or chunk
            inner = item.get("document") if isinstance(item, Mapping) else None
            groups.append([*_names(item), *_names(inner)] if isinstance(item, Mapping) else [item])
    own = _names(fields)
    if not groups and not own:
        raise ValueError(f"a citation names no source: it has {', '.join(map(repr, one))}; give it 'source' or 'id'")
    start = start or 0
    if not (isinstance(start, int) and isinstance(end, int) and 0 <= start <= end):
        raise ValueError(f"a citation's place must be whole numbers, from 0 on; got {start!r} to {end!r}")
    for names in groups or [own]:
        yield start, min(end, len(answer)), names


def _names(fields: Any) -> list[Any]:
    """What a citation calls its source, the surest name first; a place among the documents is a whole number."""
    if not isinstance(fields, Mapping):
        return []
    places = [fields[key] for key in _PLACES if isinstance(fields.get(key), int)]
    return [*places, *(fields[key] for key in _NAMES if isinstance(fields.get(key), str) and fields[key])]
