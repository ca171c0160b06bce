"""Citations of an answer: markers in its text, pairs, or the dicts of a model's interface."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

Citations: TypeAlias = Any
"""Whatever ``read_citations`` reads."""

_MARKER = re.compile(r"\s*(?:\[(?P<square>[^\[\]\n]{1,2000})\](?!\()|【(?P<wide>[^【】\n]{1,2000})】)")
_SOURCE = re.compile(r"\s*[(\[]\s*sources?:\s*(?P<named>[^()\[\]\n]{1,2000})[)\]]", re.IGNORECASE)
_RANGE = re.compile(r"(\d{1,4})\s*[-–]\s*(\d{1,4})")
_NAMES = ("id", "source", "url", "uri", "title", "document_title", "document_id", "file_id", "filename", "file_name")
_PLACES = ("document_index", "search_result_index")  # counted from 0


@dataclass(frozen=True)
class Claim:
    """The claim that a part of an answer rests on a source.

    ``start`` and ``end`` are the part's place in the answer without markers. ``source`` is a document's id; where
    ``exists`` is False it is the cited name, which no document has.
    """

    start: int
    end: int
    source: str
    exists: bool = True


@dataclass(frozen=True)
class Marked:
    """An answer without its markers, and its claims.

    Markers are never scored: without document 3 the model would find ``[3]`` unlikely, and a document that was only
    cited would look as if it were used.
    """

    text: str
    claims: tuple[Claim, ...]


def read_citations(answer: Any, citations: Citations, metadata: Mapping[str, Mapping[str, Any]]) -> Marked:
    """The claims of an answer, from its markers or from ``citations``, both as ``c2fa.verify`` takes them.

    ``metadata`` is that of the documents, by their ids, in order.

    >>> marked = read_citations("Bern is the capital [2]. It has bears.[1]", None, {"rivers": {}, "cities": {}})
    >>> marked.text, [(marked.text[c.start : c.end], c.source) for c in marked.claims]
    ('Bern is the capital. It has bears.', [('l', 'cities'), ('.', 'rivers')])
    """
    answer = getattr(answer, "content", answer)
    blocks = [answer] if isinstance(answer, str) or not isinstance(answer, Sequence) else list(answer)
    texts = [block.get("text", "") if isinstance(block, Mapping) else block for block in blocks]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"the answer must be a text, or a list of blocks of text; got {answer!r}")
    text = "".join(texts)
    cited: list[tuple[int, int, list[Any]]] = []
    start = 0
    for block, block_text in zip(blocks, texts, strict=True):
        if isinstance(block, Mapping):
            for citation in block.get("citations") or block.get("annotations") or ():
                # Offsets count within a block; a citation without any is of the whole block.
                cited += [(start + a, start + b, names) for a, b, names in _of_a_dict(citation, block_text)]
        start += len(block_text)
    if citations is not None:
        cited += chain.from_iterable(_of_any(citation, text) for citation in _listed(citations))
    sources = _Sources(metadata)
    markers = list(_markers(text, sources))
    edges = [0, *(edge for a, b, _ in markers for edge in (a, b)), len(text)]
    plain = "".join(text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True))
    indent = len(plain) - len(plain.lstrip())

    def place(at: int) -> int:
        """The place in the answer without markers, for a place in the answer with them."""
        return max(at - sum(min(at, b) - a for a, b, _ in markers if a < at) - indent, 0)

    if citations is None and not cited:
        cited = [(a, a, [source]) for a, _, named in markers for source, _ in named]
    claims = []
    for a, b, names in cited:
        start, end = place(a), max(place(b), 1)
        # An empty place, such as a marker's, stands for the letter before it.
        claims.append(Claim(min(start, end - 1), end, *sources.first(names)))
    return Marked(plain.strip(), tuple(dict.fromkeys(claims)))


@dataclass(frozen=True)
class _Sources:
    """The documents by all their names: ids, titles, files, addresses, numbers."""

    metadata: Mapping[str, Mapping[str, Any]]

    def named(self, name: Any) -> str | None:
        """The id of the document with this name or number."""
        wanted = str(name).strip().casefold()
        for own in self.metadata:
            if wanted == own.casefold():
                return own
        matches = []
        for own, about in self.metadata.items():
            if wanted in [str(about[key]).casefold() for key in _NAMES if about.get(key) is not None]:
                matches.append(own)
        if wanted and len(matches) == 1:
            return matches[0]
        from_1 = re.fullmatch(r"(?:\^|doc(?:ument)?\.?\s*|source\s*)?(\d{1,4})(?:[:†].*)?", wanted)
        if from_1:
            return self.at(int(from_1[1]) - 1)
        from_0 = re.fullmatch(r"doc[_:](\d{1,4})", wanted)  # Cohere's names for documents without an id
        return self.at(int(from_0[1])) if from_0 else None

    def at(self, place: int) -> str | None:
        """The id of a document by its place, counted from 0."""
        return list(self.metadata)[place] if 0 <= place < len(self.metadata) else None

    def first(self, names: Sequence[Any]) -> tuple[str, bool]:
        """The first document with one of these names, and True; else the first name, and False."""
        for name in names:
            own = self.at(name) if isinstance(name, int) else self.named(name)
            if own is not None:
                return own, True
        return str(names[0]), False


def _markers(text: str, sources: _Sources) -> Iterator[tuple[int, int, list[tuple[str, bool]]]]:
    """The markers of a text: start, end, and sources."""
    last = 0
    for match in sorted([*_MARKER.finditer(text), *_SOURCE.finditer(text)], key=lambda m: (m.start(), -m.end())):
        if match.start() < last:
            continue
        groups = match.groupdict()
        inside = groups.get("named") or groups.get("square") or groups.get("wide") or ""
        parts = [inside] if sources.named(inside) else re.split(r"[,;]", inside)
        names: list[str] = []
        for part in filter(None, map(str.strip, parts)):
            numbers = _RANGE.fullmatch(part)
            if numbers:
                first, end = int(numbers[1]), int(numbers[2])
                names += map(str, range(first, min(end, first + 99) + 1))
            else:
                names.append(part)
        cited = [sources.first([name]) for name in names]
        # [7] and (source: x) are citations even if no such document exists; [sic] is not.
        is_citation = "named" in groups or any(exists for _, exists in cited) or all(map(str.isdigit, names))
        if names and is_citation:
            last = match.end()
            yield match.start(), last, cited


def _listed(citations: Any) -> list[Any]:
    """The citations of any interface as a list."""
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


def _of_any(citation: Any, answer: str) -> Iterator[tuple[int, int, list[Any]]]:
    """The place in the answer, and the names of the source, of a dict or a pair."""
    if isinstance(citation, Mapping):
        yield from _of_a_dict(citation, answer)
    elif isinstance(citation, tuple | list) and len(citation) == 2:
        place, source = citation
        if source is None:
            raise ValueError(f"a citation names no source: {citation!r}; name a document")
        if isinstance(place, str):
            yield *_span(place, answer), [str(source)]
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
        raise TypeError(f"a citation must be a pair of a place in the answer and a source, or a dict; got {citation!r}")


def _span(text: str, answer: str) -> tuple[int, int]:
    start = answer.find(text)
    if start < 0 or not text.strip():
        raise ValueError(f"the answer does not hold {text!r}, which a citation is of; copy it from the answer")
    return start, start + len(text)


def _of_a_dict(citation: Mapping[str, Any], answer: str) -> Iterator[tuple[int, int, list[Any]]]:
    """A citation of LangChain, Anthropic, Cohere, Gemini or OpenAI, read without its nesting and in snake case."""
    nested = [citation.get(key) for key in ("url_citation", "file_citation", "segment", "extras")]
    fields: dict[str, Any] = {}
    for part in (*nested, citation):
        if isinstance(part, Mapping):
            fields |= {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower(): value for key, value in part.items()}
    start, end = fields.get("start_index", fields.get("start")), fields.get("end_index", fields.get("end"))
    text = fields.get("statement", fields.get("text"))
    if "chunks" in fields and end is not None:  # Gemini counts bytes
        start, end = (len(answer.encode()[: at or 0].decode(errors="ignore")) for at in (start, end))
    if end is None and isinstance(fields.get("index"), int):  # OpenAI's file citations have the place of the marker
        start, end = max(fields["index"] - 1, 0), fields["index"]
    if end is None:
        start, end = _span(text, answer) if isinstance(text, str) else (0, len(answer))
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
        keys = ", ".join(map(repr, citation))
        raise ValueError(f"a citation names no source: it has {keys}; give it 'source' or 'id'")
    start = start or 0
    if not (isinstance(start, int) and isinstance(end, int) and 0 <= start <= end):
        raise ValueError(f"a citation's place must be whole numbers, from 0 on; got {start!r} to {end!r}")
    for names in groups or [own]:
        yield start, min(end, len(answer)), names


def _names(fields: Any) -> list[Any]:
    """The names of a citation's source, the surest first; a whole number is a place among the documents."""
    if not isinstance(fields, Mapping):
        return []
    places = [fields[key] for key in _PLACES if isinstance(fields.get(key), int)]
    return [*places, *(fields[key] for key in _NAMES if isinstance(fields.get(key), str) and fields[key])]
