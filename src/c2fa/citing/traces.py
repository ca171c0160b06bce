"""Traces in OpenInference's format: read for the questions and answers in them, and annotated with their sources."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from c2fa.citing.documents import Document
from c2fa.citing.questions import Question, chat_question
from c2fa.explanation import Explanation


@dataclass(frozen=True, eq=False)
class _Span:
    """A span of a trace; ``inner`` is True inside another span, and ``attributes`` have dotted names."""

    name: str
    id: str
    trace: str
    inner: bool
    attributes: Mapping[str, Any]

    @classmethod
    def of(cls, given: Any) -> _Span:
        if not isinstance(given, Mapping):
            raise TypeError(f"a span must be an object with attributes; got {given!r:.80}")
        flat = dict(_flat(given))
        ids = [flat[name] for name in ("context.span_id", "span_id", "spanId") if name in flat]
        traces = [flat[name] for name in ("context.trace_id", "trace_id", "traceId") if name in flat]
        attributes = {name.removeprefix("attributes."): v for name, v in flat.items() if name.startswith("attributes.")}
        if not ids or not attributes:
            raise ValueError(
                f"a span must have a span_id and attributes; got one with {', '.join(map(repr, given)) or 'nothing'}"
            )
        inner = any(flat.get(name) for name in ("parent_id", "parentSpanId", "parent_span_id"))
        return cls(str(given.get("name", "tool")), str(ids[0]), str(*traces[:1]), inner, attributes)

    @property
    def kind(self) -> str:
        return str(self.attributes.get("openinference.span.kind", "")).upper()

    def text(self, name: str) -> str:
        """``input.value`` or ``output.value``; empty for JSON."""
        value, kind = self.attributes.get(f"{name}.value"), self.attributes.get(f"{name}.mime_type")
        return value if isinstance(value, str) and kind != "application/json" else ""

    def messages(self, name: str) -> list[dict[str, Any]]:
        """The messages to the model (``input``) or from it (``output``)."""
        return [_message(fields) for fields in _listed(self.attributes, f"llm.{name}_messages").values()]


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Nested fields by dotted names; in OpenTelemetry's own JSON an object is a list of keys and values."""
    if isinstance(value, list):
        if all(isinstance(v, Mapping) and v.keys() == {"key", "value"} for v in value):
            value = {v["key"]: next(iter(v["value"].values()), None) for v in value}
        else:
            value = dict(enumerate(value))
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _listed(fields: Mapping[str, Any], name: str) -> dict[int, dict[str, Any]]:
    """The fields below ``name.0``, ``name.1``, …, by these numbers.

    >>> _listed({"a.10.x": 1, "a.2.x": 2, "a.2.y.z": 3, "ab.0.x": 4}, "a")
    {2: {'x': 2, 'y.z': 3}, 10: {'x': 1}}
    """
    items: dict[int, dict[str, Any]] = {}
    for key, value in fields.items():
        match = re.fullmatch(rf"{re.escape(name)}\.(\d+)\.(.+)", key)
        if match:
            items.setdefault(int(match[1]), {})[match[2]] = value
    return dict(sorted(items.items()))


def _message(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A message of a chat, from its attributes."""
    parts = (part.get("message_content.text") or "" for part in _listed(fields, "message.contents").values())
    content = fields.get("message.content") or "".join(parts)
    message = {"role": str(fields.get("message.role", "user")), "content": content}
    message |= {key: fields[f"message.{key}"] for key in ("name", "tool_call_id") if fields.get(f"message.{key}")}
    calls = []
    for call in _listed(fields, "message.tool_calls").values():
        arguments = _parsed(call.get("tool_call.function.arguments"))
        function = {"name": call.get("tool_call.function.name", ""), "arguments": arguments}
        calls.append({"id": call.get("tool_call.id", ""), "type": "function", "function": function})
    return {**message, "tool_calls": calls} if calls else message


def _parsed(text: Any) -> Any:
    """The value of a JSON text; anything else as it is."""
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text


# ---------------------------------------------------------------------------------- in


def read_spans(text: str) -> list[dict[str, Any]]:
    """The spans of a file: one on each line, a list of them, or an export of OpenTelemetry (``resourceSpans``).

    >>> read_spans('{"span_id": "a", "attributes": {}}')
    [{'span_id': 'a', 'attributes': {}}]
    """
    try:
        return list(_spans(json.loads(text)))
    except ValueError:  # not one document, so one on each line
        documents = []
    for k, line in enumerate(text.splitlines(), start=1):
        try:
            documents += [json.loads(line)] if line.strip() else []
        except ValueError as error:
            raise ValueError(f"line {k} is not JSON: {error}; a trace has a span on each line") from None
    return list(_spans(documents))


def _spans(document: Any) -> Iterator[dict[str, Any]]:
    if isinstance(document, list):
        for item in document:
            yield from _spans(item)
        return
    keys = document.keys() if isinstance(document, Mapping) else ()
    nested = [document[key] for key in ("resourceSpans", "scopeSpans", "spans", "data") if key in keys]
    if not nested:
        yield document
    for item in nested:
        yield from _spans(item)


def questions_of(spans: Iterable[Mapping[str, Any]]) -> dict[str, Question]:
    """The question of each answer in a trace, with its sources, by the id of the span that wrote the answer.

    An answer is the text that a span of the kind LLM wrote. Its sources are retrieved documents and tools' results,
    where the messages hold them word for word, and earlier turns of the chat. If the messages hold no source, or no
    LLM span has an answer, the retrieved documents become a prompt, as in ``c2fa.cite``.

    Examples
    --------
    >>> attributes = {"openinference.span.kind": "RETRIEVER", "retrieval.documents.0.document.content": "It rains."}
    >>> chain = {"openinference.span.kind": "CHAIN", "input.value": "Weather?", "output.value": "Rain."}
    >>> trace = [{"span_id": "r", "attributes": attributes}, {"span_id": "c", "attributes": chain}]
    >>> [(span, q.documents, q.query, q.answer) for span, q in questions_of(trace).items()]
    [('c', {'r 0': 'It rains.'}, 'Weather?', 'Rain.')]
    """
    all_spans = list(map(_Span.of, spans))
    questions: dict[str, Question] = {}
    for trace in dict.fromkeys(span.trace for span in all_spans):
        own = [span for span in all_spans if span.trace == trace]
        retrieved, results = _documents(own)
        answering = [span for span in own if span.kind == "LLM" and _answer(span)]
        for span in answering:
            chat = span.messages("input") or [{"role": "user", "content": span.text("input")}]
            inside = [d for d in (*retrieved, *results) if any(d.text in (m["content"] or "") for m in chat)]
            query = next((m["content"] for m in reversed(chat) if m["role"] == "user"), "")
            try:
                questions[span.id] = chat_question(chat, inside or None, _answer(span))
            except ValueError:  # nothing of the chat can be removed
                if retrieved and query:
                    questions[span.id] = Question(retrieved, query, _answer(span))
        chains = [s for s in own if s.kind in ("CHAIN", "AGENT") and s.text("input") and s.text("output").strip()]
        if not answering and retrieved and chains:
            outermost = min(chains, key=lambda span: span.inner)
            questions[outermost.id] = Question(retrieved, outermost.text("input"), outermost.text("output"))
    if not questions:
        raise ValueError(
            "no span of the trace has an answer and something that it may rest on: an LLM span needs "
            "llm.output_messages, and documents, tools' results or earlier turns in its llm.input_messages; a CHAIN or "
            "AGENT needs input.value, output.value and documents that were retrieved"
        )
    return questions


def _answer(span: _Span) -> str:
    messages = span.messages("output")
    text = "".join(message["content"] for message in messages) if messages else span.text("output")
    return text.strip()


def _documents(spans: Sequence[_Span]) -> tuple[list[Document], list[Document]]:
    """The documents that spans retrieved, and tools' results; metadata has their spans, and places in these."""
    retrieved: dict[str, Document] = {}
    results: dict[str, Document] = {}
    for span in spans:
        for name in ("retrieval.documents", "reranker.output_documents"):
            for place, fields in _listed(span.attributes, name).items():
                text = str(fields.get("document.content") or "")
                if text in retrieved:
                    retrieved[text].metadata["spans"].append([span.id, place])
                elif text.strip():
                    nested = _parsed(fields.get("document.metadata"))
                    metadata = dict(nested) if isinstance(nested, Mapping) else {}
                    dotted = {k.removeprefix("document.metadata."): v for k, v in fields.items()}
                    metadata |= {k: dotted[k] for k in dotted.keys() - fields.keys()}
                    if "document.score" in fields:
                        metadata["score"] = fields["document.score"]
                    own = str(fields.get("document.id", f"{span.id} {place}"))
                    if own in {document.id for document in retrieved.values()}:
                        own = f"{own} ({span.id} {place})"
                    retrieved[text] = Document(own, text, {**metadata, "spans": [[span.id, place]]})
        text = span.text("output")
        if span.kind == "TOOL" and text.strip() and text not in results:
            tool = str(span.attributes.get("tool.name", span.name))
            ids = {document.id for document in (*retrieved.values(), *results.values())}
            own = f"{tool} ({span.id})" if tool in ids else tool
            results[text] = Document(own, text, {"tool": tool, "spans": [[span.id, None]]})
    return list(retrieved.values()), [d for text, d in results.items() if text not in retrieved]


# ---------------------------------------------------------------------------------- out


def span_annotations(cited: Mapping[str, Explanation]) -> list[dict[str, Any]]:
    """The documents' scores for explained answers, as annotations of the spans that retrieved the documents.

    Phoenix takes them at ``/v1/document_annotations``, and those of tools' results, which have no
    ``document_position``, at ``/v1/span_annotations``. A score is how much likelier, in nats, the document makes the
    answer; its explanation lists the statements that rest on the document.
    """
    annotations = []
    for span, e in cited.items():
        if e.answer is None or e.level_names[0] != "documents":
            raise ValueError("a trace takes values of documents; give levels= that begin with documents")
        rests, whole = e.to_records(), e.for_target(0)
        for k in np.argsort(-whole.high, kind="stable").tolist():
            document = e.answer.documents[k]
            statements = list(dict.fromkeys(r["statement"] for r in rests if r["source"] == document.id))
            result = {
                "score": float(whole.high[k]),
                "label": "used" if statements else "not used",
                "explanation": " ".join(statements),
            }
            stderr = None if whole.stderr is None else float(whole.stderr[0][k])
            metadata = {"answer_span_id": span, "stderr": stderr}
            about = {"name": "c2fa", "annotator_kind": "CODE", "result": result, "metadata": metadata}
            for own, place in json.loads(document.known).get("spans", []):
                at = {"span_id": own} if place is None else {"span_id": own, "document_position": place}
                annotations.append({**at, **about})
    return annotations
