"""Documents by their shape: real objects where their packages are installed, objects that look alike elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import c2fa
from c2fa.citing import Document, documents_of
from c2fa.citing.documents import frames, read_html, read_pdf
from running import pdf
from servers.environments import CannotInstall, environment


class LangChain:
    """Looks like a document of LangChain's: a pydantic model, which gives its fields when it is iterated over."""

    def __init__(self, page_content, id=None, **metadata):
        self.page_content, self.id, self.metadata, self.type = page_content, id, metadata, "Document"

    def __iter__(self):
        return iter(vars(self).items())


@dataclass
class Haystack:
    content: str | None
    id: str = "0f"
    meta: dict[str, Any] = field(default_factory=dict)
    score: float | None = None


def node(text, **metadata):
    return SimpleNamespace(text=text, id_="n1", node_id="n1", metadata=metadata)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("It rains.", Document("document 1", "It rains.")),
        (["It rains."], Document("document 1", "It rains.")),
        ({"a": "It rains."}, Document("a", "It rains.")),
        ([("a", "It rains.")], Document("a", "It rains.")),
        ([(7, "It rains.")], Document("7", "It rains.")),
        ([{"id": 7, "text": "It rains."}], Document("7", "It rains.")),
        ([{"content": "It rains.", "url": "u"}], Document("document 1", "It rains.", {"url": "u"})),
        ([{"page_content": "It rains.", "metadata": {"p": 1}}], Document("document 1", "It rains.", {"p": 1})),
        ([{"id": "a", "data": {"text": "It rains.", "title": "T"}}], Document("a", "It rains.", {"title": "T"})),
        ({"id": "a", "text": "It rains.", "title": "T"}, Document("a", "It rains.", {"title": "T"})),
        ({"page_content": "It rains.", "metadata": {"p": 1}}, Document("document 1", "It rains.", {"p": 1})),
        ({"text": "It rains."}, Document("text", "It rains.")),
        ([LangChain("It rains.", page=3)], Document("document 1", "It rains.", {"page": 3})),
        (LangChain("It rains.", "x"), Document("x", "It rains.")),
        ([(LangChain("It rains."), 0.5)], Document("document 1", "It rains.", {"score": 0.5})),
        ({"a": LangChain("It rains.")}, Document("a", "It rains.")),
        ([Haystack("It rains.", meta={"p": 1}, score=0.5)], Document("0f", "It rains.", {"score": 0.5, "p": 1})),
        ([node("It rains.", p=1)], Document("n1", "It rains.", {"p": 1})),
        ([SimpleNamespace(node=node("It rains."), score=0.5)], Document("n1", "It rains.", {"score": 0.5})),
        (documents_of({"a": "It rains."}), Document("a", "It rains.")),
        (iter([Document("a", "It rains.", {"p": 1})]), Document("a", "It rains.", {"p": 1})),
    ],
)
def test_one_document_of_every_shape(given, found):
    assert documents_of(given) == {found.id: found}


def test_the_real_objects():
    langchain = pytest.importorskip("langchain_core.documents").Document
    given = [langchain(page_content="It rains.", metadata={"page": 3}), langchain(id="x", page_content="It snows.")]
    found = documents_of(given)
    assert list(found.values()) == [Document("document 1", "It rains.", {"page": 3}), Document("x", "It snows.")]
    assert documents_of(given[1]) == {"x": found["x"]}


def test_the_real_objects_of_llama_index():
    schema = pytest.importorskip("llama_index.core.schema")
    one = schema.TextNode(text="It rains.", id_="a", metadata={"page": 3})
    scored = schema.NodeWithScore(node=schema.TextNode(text="It snows.", id_="b"), score=0.5)
    found = documents_of([one, scored])
    assert found == {"a": Document("a", "It rains.", {"page": 3}), "b": Document("b", "It snows.", {"score": 0.5})}


def test_the_real_objects_of_haystack():
    document = pytest.importorskip("haystack").Document(content="It rains.", meta={"page": 3}, score=0.5)
    expected = {document.id: Document(document.id, "It rains.", {"score": 0.5, "page": 3})}
    assert documents_of([document]) == documents_of([document.to_dict()]) == expected


@pytest.mark.servers
def test_the_real_objects_in_an_environment_of_their_own():
    try:  # 160 MB, of which a third is other companies' clients: too heavy to be among what every run needs
        python = environment("retrieval", "langchain-core", "llama-index-core", "haystack-ai", "pytest")
    except CannotInstall as error:
        pytest.skip(str(error))
    files = [__file__, *(str(Path(__file__).with_name(name)) for name in ("test_citing_chats.py", "test_verifying.py"))]
    command = [str(python), "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-k", "real or langchains", *files]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert "5 passed" in done.stdout, done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_the_rows_of_a_frame(package):
    frame = pytest.importorskip(package).DataFrame
    found = documents_of(frame({"text": ["It rains.", "It snows."], "title": ["R", "S"]}))
    assert [d.text for d in found.values()] == ["It rains.", "It snows."]
    assert [d.metadata for d in found.values()] == [{"title": "R"}, {"title": "S"}]
    named = frame({"passage": ["It rains.", "It snows."], "key": ["r", "s"]})
    with pytest.raises(ValueError, match=r"none of the columns 'passage', 'key' is called .*; rename the one"):
        documents_of(named)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "documents must be texts by their ids"),
        (b"It rains.", "documents must be texts by their ids"),
        (None, "documents must be texts by their ids"),
        ([], "no documents"),
        ([3], "document 'document 1' must be a text, .* got 3"),
        ([None], "must be a text, .* got None"),
        ([{"body": "It rains."}], "must be a text, .* got a dict with 'body'"),
        ({"a": "It rains.", "metadata": {}}, "document 'metadata' must be a text"),
        ([Haystack(None)], "must be a text"),
        ([("a", "b", "c")], "must be a text"),
        (["It rains.", " "], "'document 2' is empty"),
        ([("a", "It rains."), ("a", "It snows.")], "one id"),
    ],
)
def test_what_is_no_document_gets_one_sentence(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        documents_of(given)


class Prompts:
    """A language model that keeps what it reads."""

    def __init__(self):
        self.prompts = []

    def pieces(self, answer):
        return [answer]

    def score(self, prompts, answer):
        self.prompts += prompts
        return [[-1.0 - ("rains" not in prompt)] for prompt in prompts]


GIVEN = [
    {"id": "w", "text": "It rains. It is cold.", "title": "Weather"},
    {"id": "g", "text": "It grows.", "title": "Grass"},
]


def test_a_header_stays_while_a_sentence_does():
    lm = Prompts()
    c2fa.cite(lm, GIVEN, "?", "Rain.", document="[{id}] {title}\n{text}", budget=20, prompt="{context}|{query}")
    contexts = {prompt.partition("|")[0] for prompt in lm.prompts}
    assert "[w] Weather\nIt rains. It is cold.\n\n[g] Grass\nIt grows." in contexts
    assert {"[w] Weather\nIt rains.", "[w] Weather\nIt is cold.", "[g] Grass\nIt grows.", ""} <= contexts


def test_other_headers_are_other_rows_of_a_ledger(tmp_path):
    options = {"budget": 20, "document": "{title}: {text}", "ledger": tmp_path / "rows", "model_name": "m"}
    c2fa.cite(Prompts(), GIVEN, "?", "Rain.", **options)
    same, other = Prompts(), Prompts()
    c2fa.cite(same, GIVEN, "?", "Rain.", **options)
    c2fa.cite(other, [{**GIVEN[0], "title": "Sun"}, GIVEN[1]], "?", "Rain.", **options)
    assert not same.prompts
    assert any("Sun: It rains." in prompt for prompt in other.prompts)


def test_braces_in_titles_are_their_own():
    assert frames("{title} {text}", {"a": {"title": "{text} {id}"}}) == {"a": ("{text} {id} ", "")}


def test_pages_are_read_without_markup():
    page = "<title>T</title><style>p {}</style><p>It <i>rains</i>.<br>It&nbsp;snows &amp; so<p>on<script>x</script>"
    assert read_html(page) == "T\n\nIt rains.\n\nIt snows & so\n\non"


def test_a_pdfs_pages_are_documents(tmp_path):
    pytest.importorskip("pypdf")
    (tmp_path / "a.pdf").write_bytes(pdf("It rains.", "", "It snows."))
    first, third = read_pdf(tmp_path / "a.pdf")
    assert (first.id, first.text.strip()) == ("a.pdf page 1", "It rains.")
    assert third.metadata == {"file": "a.pdf", "page": 3}
    (tmp_path / "scan.pdf").write_bytes(pdf(""))
    with pytest.raises(ValueError, match="holds no text, as scanned pages do"):
        read_pdf(tmp_path / "scan.pdf")
