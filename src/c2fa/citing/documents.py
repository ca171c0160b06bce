"""Documents of other packages and files, recognised by their fields, so that no package is imported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TypeAlias

from c2fa._system import need

Documents: TypeAlias = Any
"""Whatever ``documents_of`` reads."""

_TEXTS = ("text", "page_content", "content")
_IDS = ("id", "id_", "doc_id", "document_id", "_id")
_METADATA = ("metadata", "meta")


@dataclass(frozen=True)
class Document:
    """A document with its metadata, such as title, file and score."""

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


def documents_of(given: Documents, *, called: str = "document") -> dict[str, Document]:
    """Documents by their ids, in their order.

    Parameters
    ----------
    given
        A dict of ids and texts; one text, or a list of texts, of (id, text), of dicts with ``text``, ``page_content``
        or ``content``, of LangChain's and Haystack's documents, of LlamaIndex's nodes with or without scores; or the
        rows of a DataFrame. Further fields become metadata.
    called
        The name, before their number, of documents without an id.

    Examples
    --------
    >>> documents_of([{"page_content": "The sky is blue.", "metadata": {"page": 3}}])
    {'document 1': Document(id='document 1', text='The sky is blue.', metadata={'page': 3})}
    """
    documents = [_document(item, name) for name, item in _items(given, called)]
    by_id = {document.id: document for document in documents}
    if len(by_id) < len(documents):
        raise ValueError(f"two documents have one id among {[d.id for d in documents]}; give each its own")
    if not documents:
        raise ValueError("there are no documents; give at least one")
    for name, document in by_id.items():
        if not document.text.strip():
            raise ValueError(f"document {name!r} is empty; leave it out")
    return by_id


def _items(given: Any, called: str) -> Iterator[tuple[str, Any]]:
    """Each document with its default name, used where the document has no id."""
    if isinstance(given, Mapping):
        is_one_document = set(_TEXTS) & given.keys() and {*_IDS, *_METADATA} & given.keys()
        if not is_one_document:
            yield from ((str(name), item) for name, item in given.items())
            return
    if hasattr(given, "columns"):  # a DataFrame of pandas or polars
        columns = list(map(str, given.columns))
        if not set(_TEXTS) & set(columns):
            raise ValueError(
                f"none of the columns {', '.join(map(repr, columns))} is called {' or '.join(map(repr, _TEXTS))}; "
                "rename the one with the texts"
            )
        given = given.to_dicts() if hasattr(given, "to_dicts") else given.to_dict("records")
    # One document is not a list of documents, though iterating over one of LangChain's gives its fields.
    if isinstance(given, str | Mapping) or any(isinstance(getattr(given, name, None), str) for name in _TEXTS):
        given = [given]
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise TypeError(f"documents must be texts by their ids, or a list of documents; got {given!r}")
    yield from ((f"{called} {k}", item) for k, item in enumerate(given, start=1))


def _document(item: Any, name: str) -> Document:
    metadata: dict[str, Any] = {}
    if isinstance(item, tuple) and len(item) == 2:
        first, second = item
        if isinstance(second, str):
            return Document(str(first), second)
        item, metadata = first, {"score": float(second)}  # from a search with scores
    if isinstance(item, str):
        return Document(name, item, metadata)
    node = getattr(item, "node", None)  # LlamaIndex wraps a node with its score
    if node is not None:
        item, metadata = node, {"score": item.score}
    if isinstance(item, Mapping):
        fields = {**item, **item["data"]} if isinstance(item.get("data"), Mapping) else dict(item)  # Cohere nests them
        fields.pop("data", None)
    else:
        fields = {key: getattr(item, key, None) for key in (*_TEXTS, *_IDS, *_METADATA, "score")}
    text_key = next((key for key in _TEXTS if isinstance(fields.get(key), str)), None)
    if text_key is None:
        got = f"a dict with {', '.join(map(repr, item)) or 'nothing'}" if isinstance(item, Mapping) else repr(item)[:80]
        raise TypeError(
            f"document {name!r} must be a text, (id, text), a dict with {' or '.join(map(repr, _TEXTS))}, or an object "
            f"that has one of these; got {got}"
        )
    own_id = next((fields[key] for key in _IDS if fields.get(key) is not None), name)
    elsewhere = (*_TEXTS, *_IDS, *_METADATA)
    metadata |= {key: value for key, value in fields.items() if value is not None and key not in elsewhere}
    for key in _METADATA:
        metadata |= fields.get(key) or {}
    return Document(str(own_id), fields[text_key], metadata)


# ---------------------------------------------------------------------------------- frames around documents


def frames(template: str, metadata: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """The texts before and after each document, from a template such as ``"[{id}] {title}\\n{text}"``.

    >>> frames("[{id}] {title}: {text}", {"7": {"title": "Sky"}})
    {'7': ('[7] Sky: ', '')}
    """
    if not isinstance(template, str) or template.count("{text}") != 1:
        raise ValueError(
            f"document= must be a text with {{text}} in it once, for what a document says; got {template!r}"
        )
    before, after = template.split("{text}")
    return {name: (_fill(before, name, more), _fill(after, name, more)) for name, more in metadata.items()}


def _fill(part: str, name: str, metadata: Mapping[str, Any]) -> str:
    fields = {**metadata, "id": name}
    for field_name in re.findall(r"\{(\w+)\}", part):
        if field_name not in fields:
            raise ValueError(
                f"document= asks for {{{field_name}}}, and document {name!r} has {', '.join(fields)}; leave it out, or "
                "give it to every document"
            )
    return re.sub(r"\{(\w+)\}", lambda match: str(fields[match[1]]), part)


# ---------------------------------------------------------------------------------- files


def read_html(text: str) -> str:
    """The text of an HTML page, with a blank line between blocks.

    >>> read_html("<h1>Sky</h1><p>It is <b>blue</b>.<script>x()</script></p>")
    'Sky\\n\\nIt is blue.'
    """
    reader = _Page()
    reader.feed(text)
    reader.close()
    lines = (" ".join(block.split()) for block in "".join(reader.pieces).split("\f"))
    return "\n\n".join(line for line in lines if line)


class _Page(HTMLParser):
    """A reader of pages that puts a form feed wherever a block begins or ends."""

    within = re.compile("a|abbr|b|code|em|i|kbd|mark|q|s|small|span|strong|sub|sup|u")

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._hidden += tag in ("script", "style")
        self.pieces.append("" if self.within.fullmatch(tag) else "\f")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")
        self.pieces.append("" if self.within.fullmatch(tag) else "\f")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.pieces.append(data)


def read_pdf(path: Path) -> list[Document]:
    """The pages of a PDF file as documents, with their numbers; pages without text are left out."""
    documents = []
    for k, page in enumerate(need("pypdf", "pdf").PdfReader(path).pages, start=1):
        text = page.extract_text()
        if text.strip():
            documents.append(Document(f"{path.name} page {k}", text, {"file": path.name, "page": k}))
    if not documents:
        raise ValueError(f"{str(path)!r} holds no text, as scanned pages do; read them with OCR first")
    return documents
