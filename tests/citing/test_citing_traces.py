"""Traces: an agent's retrievals, messages and answers in, by OpenInference's names; scores out."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_citing_chats import Guide

import c2fa
from c2fa.citing import Citer
from c2fa.citing.traces import questions_of, read_spans, span_annotations
from c2fa.cli import app
from running import RUNNER

ADA, SWANS = "Ada Morn built it. It took nine years.", "Swans like the Lund."
ANSWER = "Ada Morn did. You are in Lund."


def span(id: str, kind: str, parent: str | None = "root", **attributes: Any) -> dict[str, Any]:
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    return {
        "name": f"the {kind.lower()}",
        "context": {"trace_id": "t", "span_id": id},
        "parent_id": parent,
        "start_time": "2026-01-01T00:00:00Z",
        "attributes": {"openinference.span.kind": kind, **named},
    }


def flat(prefix: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    return {f"{prefix}.{k}.{name}": value for k, item in enumerate(items) for name, value in item.items()}


def trace() -> list[dict[str, Any]]:
    """A conversation in which a tool searches, and a retriever finds two passages, of which one is used."""
    call = {
        "message.role": "assistant",
        "message.tool_calls.0.tool_call.id": "c1",
        "message.tool_calls.0.tool_call.function.name": "search",
        "message.tool_calls.0.tool_call.function.arguments": '{"q": "bridge"}',
    }
    asked = [
        {"message.role": "system", "message.content": f"Use these.\n[1] {SWANS}\n[2] {ADA}"},
        {"message.role": "user", "message.content": "I am in Lund."},
        {"message.role": "user", "message.content": "Who built the bridge?"},
    ]
    result = {"message.role": "tool", "message.content": "Nine results.", "message.tool_call_id": "c1"}
    documents = [
        {"document.id": "swans", "document.content": SWANS, "document.score": 0.9},
        {"document.id": 7, "document.content": ADA, "document.score": 0.5, "document.metadata": '{"page": 3}'},
        {"document.id": "unread", "document.content": "Nobody showed this to the model."},
    ]
    answer = {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": ANSWER}
    calls = {f"llm.output_messages.0.{name}": value for name, value in call.items()}
    return [
        span("root", "AGENT", None, input__value="Who built the bridge?", output__value=ANSWER),
        span("found", "RETRIEVER", **flat("retrieval.documents", documents)),
        span("calls", "LLM", **flat("llm.input_messages", asked), **calls),
        span("tool", "TOOL", tool__name="search", output__value="Nine results."),
        span("again", "RERANKER", **flat("reranker.output_documents", documents[1:2])),
        span("says", "LLM", **flat("llm.input_messages", [*asked, call, result]), **answer),
    ]


def nested(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Attributes as objects and lists, as Phoenix exports them."""
    found = []
    for given in spans:
        tree: dict[str, Any] = {}
        for name, value in given["attributes"].items():
            at = tree
            *above, last = name.split(".")
            for part in above:
                at = at.setdefault(part, {})
            at[last] = value

        def listed(node: Any) -> Any:
            if not isinstance(node, dict):
                return node
            values = {k: listed(v) for k, v in node.items()}
            return list(values.values()) if values and all(k.isdigit() for k in values) else values

        found.append({**given, "attributes": listed(tree)})
    return found


def otlp(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As OpenTelemetry writes them to files."""
    kinds = {str: "stringValue", int: "intValue", float: "doubleValue"}
    return [
        {
            "traceId": given["context"]["trace_id"],
            "spanId": given["context"]["span_id"],
            "parentSpanId": given["parent_id"] or "",
            "name": given["name"],
            "attributes": [{"key": k, "value": {kinds[type(v)]: v}} for k, v in given["attributes"].items()],
        }
        for given in spans
    ]


@pytest.mark.parametrize("shape", [list, nested, otlp])
def test_a_trace_of_a_tool_using_conversation(shape):
    spans = shape(trace())
    questions = questions_of(spans)
    assert list(questions) == ["says"], "a call of a tool is no answer"
    question = questions["says"]
    assert list(question.texts) == ["swans", "7", "turn 2 (user)", "search"]
    assert question.query == "Who built the bridge?"
    assert question.answer == ANSWER
    [whole] = [m for m in question.chat(question.texts) if m.get("tool_calls")]
    assert whole["tool_calls"][0]["function"] == {"name": "search", "arguments": {"q": "bridge"}}
    assert question.metadata["7"] == {"page": 3, "score": 0.5, "spans": [["found", 1], ["again", 0]]}

    c = Citer(Guide(), budget=64)(question)
    np.testing.assert_allclose(c.high, [0.0, 5.0, 4.0, 0.0], atol=1e-6)


def test_annotations_go_to_every_span_that_has_the_document():
    c = Citer(Guide(), budget=64)(questions_of(trace())["says"])
    found = {(a["span_id"], a.get("document_position")): a for a in span_annotations({"says": c})}
    assert set(found) == {("found", 0), ("found", 1), ("again", 0), ("tool", None)}
    used = found["found", 1]
    assert used["result"]["label"] == "used"
    assert used["result"]["score"] == pytest.approx(5.0, abs=1e-6)
    assert used["result"]["explanation"] == "Ada Morn did."
    assert found["found", 0]["result"]["label"] == "not used"
    assert json.loads(json.dumps(list(found.values())))


def test_two_results_of_one_tool_have_names_of_their_own():
    kind = "openinference.span.kind"
    said = ["It rains.", "It snows."]
    messages = [{"role": "tool", "content": text} for text in said] + [{"role": "user", "content": "Weather?"}]
    flat = {f"llm.input_messages.{k}.message.{key}": m[key] for k, m in enumerate(messages) for key in m}
    spans = [
        {"span_id": f"s{k}", "attributes": {kind: "TOOL", "tool.name": "weather", "output.value": text}}
        for k, text in enumerate(said)
    ]
    spans.append({"span_id": "says", "attributes": {kind: "LLM", **flat, "output.value": "Rain."}})
    assert questions_of(spans)["says"].texts == {"weather": said[0], "weather (s1)": said[1]}


def test_a_statement_with_two_passages_of_a_document_is_listed_once():
    class Both(Guide):
        worth = (("Ada Morn", 0, 5.0), ("nine years", 0, 4.0))

    c = Citer(Both(), budget=64)({"documents": ["Ada Morn built it. It took nine years.", "Swans."], "query": "?"})
    assert [len(statement["sources"]) for statement in c.sources()] == [2, 0]
    documents = [replace(d, known=json.dumps({"spans": [["s", k]]})) for k, d in enumerate(c.answer.documents)]
    c = replace(c, answer=replace(c.answer, documents=tuple(documents)))
    [first, _] = span_annotations({"says": c})
    assert first["result"]["explanation"] == c.answer.statements[0]


def test_retrieved_documents_without_messages_are_read_by_our_own_prompt():
    spans = [s for s in trace() if s["context"]["span_id"] in ("root", "found")][::-1]
    question = questions_of(spans)["root"]
    assert list(question.texts) == ["swans", "7", "unread"]
    assert (question.query, question.answer) == ("Who built the bridge?", ANSWER)
    c = Citer(Guide(), budget=40)(question)
    assert c.sources()[0]["sources"][0]["metadata"]["page"] == 3


def test_a_prompt_that_is_one_text_holds_its_documents():
    said = {"llm__output_messages__0__message__content": ANSWER}
    spans = [trace()[1], span("says", "LLM", input__value=f"Read.\n{ADA}\n{SWANS}\nWho built it?", **said)]
    question = questions_of(spans)["says"]
    assert list(question.texts) == ["7", "swans"]
    assert question.query == "Read.\n…\n…\nWho built it?"


def test_messages_of_several_parts_are_read_in_their_order():
    parts = {f"llm.input_messages.0.message.contents.{k}.message_content.text": f"Part {k}. " for k in range(12)}
    asked = {**parts, "llm.input_messages.1.message.role": "user", "llm.input_messages.1.message.content": "Which?"}
    spans = [span("says", "LLM", **asked, llm__output_messages__0__message__content="Part 2.")]
    assert questions_of(spans)["says"].texts == {"turn 1 (user)": "".join(f"Part {k}. " for k in range(12))}


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([], "no span of the trace has an answer"),
        ([span("a", "TOOL", output__value="Nine.")], "no span of the trace has an answer"),
        ([{"attributes": {"a": 1}}], "must have a span_id and attributes"),
        ([{"span_id": "a"}], "must have a span_id and attributes"),
        (["a"], "a span must be an object"),
        (read_spans("[5, null]"), "a span must be an object"),
    ],
)
def test_what_is_no_trace_is_refused(spans, message):
    with pytest.raises((TypeError, ValueError), match=message):
        questions_of(spans)


def test_only_values_of_documents_go_into_a_trace():
    c = Citer(Guide(), budget=40, levels=("sentences",))(questions_of(trace())["says"])
    with pytest.raises(ValueError, match="levels= that begin with documents"):
        span_annotations({"says": c})


@pytest.mark.parametrize("pretty", [False, True])
def test_files_of_lines_of_lists_and_of_exports(pretty):
    spans, exported = trace(), {"resourceSpans": [{"scopeSpans": [{"spans": otlp(trace())}]}]}
    assert read_spans("\n".join(map(json.dumps, spans)) + "\n") == spans
    assert read_spans(json.dumps(spans, indent=2 if pretty else None)) == spans
    assert read_spans(json.dumps(exported, indent=2 if pretty else None)) == otlp(spans)
    assert read_spans("\n".join(json.dumps(exported) for _ in range(2))) == otlp(spans) * 2


# On the command line.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    (tmp_path / "mine.py").write_text("from test_citing_chats import Guide\n\nguide = Guide()\n")
    (tmp_path / "spans.jsonl").write_text("\n".join(map(json.dumps, trace())))
    return tmp_path


def run(*args: str, code: int = 0) -> Any:
    result = RUNNER.invoke(app, ["cite", *args, "--model", "python:mine:guide"])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return result


def test_a_file_of_chats_is_explained_into_a_store(folder):
    from test_citing_chats import CHAT

    lines = [json.dumps({"messages": CHAT, "answer": ANSWER}), json.dumps({"messages": CHAT[:1]})]
    (folder / "chats.jsonl").write_text("\n".join(lines))
    run("--questions", "chats.jsonl", "--store", "cited", "--workers", "1", "--store-option", "engine=serial")
    store = c2fa.batch.Store("cited")
    assert store[0].answer.stays == ("turn 1 (system)", "turn 4 (user)")
    assert "no message of the user" in store.errors()[0].error
