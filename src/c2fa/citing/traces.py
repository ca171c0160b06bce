"""Traces in OpenInference's words: what an agent retrieved, read and answered, in; what each answer rests on, out."""

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
    """A span of a trace: whether it is inside another, and its attributes by their dotted names."""

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
        """``input.value`` or ``output.value``, where it is no JSON."""
        value, kind = self.attributes.get(f"{name}.value"), self.attributes.get(f"{name}.mime_type")
        return value if isinstance(value, str) and kind != "application/json" else ""

    def messages(self, name: str) -> list[dict[str, Any]]:
        """The messages that the model read (``input``) or wrote (``output``)."""
        return [_message(fields) for fields in _listed(self.attributes, f"llm.{name}_messages").values()]


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """What is nested, by dotted names; OpenTelemetry's own JSON has lists of keys and values in place of objects."""
    if isinstance(value, list):
        pairs = value and all(isinstance(v, Mapping) and v.keys() == {"key", "value"} for v in value)
        value = {v["key"]: next(iter(v["value"].values()), None) for v in value} if pairs else dict(enumerate(value))
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _listed(fields: Mapping[str, Any], name: str) -> dict[int, dict[str, Any]]:
    """What ``name.0.…``, ``name.1.…`` say, by these numbers.

    >>> _listed({"a.10.x": 1, "a.2.x": 2, "a.2.y.z": 3, "ab.0.x": 4}, "a")
    {2: {'x': 2, 'y.z': 3}, 10: {'x': 1}}
    """
    found: dict[int, dict[str, Any]] = {}
    for key, value in fields.items():
        match = re.fullmatch(rf"{re.escape(name)}\.(\d+)\.(.+)", key)
        if match:
            found.setdefault(int(match[1]), {})[match[2]] = value
    return dict(sorted(found.items()))


def _message(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A message of a chat, from the attributes of one."""
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
    """What JSON says; a text that is none, as it is."""
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text


# ---------------------------------------------------------------------------------- in


def read_spans(text: str) -> list[dict[str, Any]]:
    """The spans of a file: one on each line, a list of them, or what OpenTelemetry exports (``resourceSpans``).

    >>> read_spans('{"span_id": "a", "attributes": {}}')
    [{'span_id': 'a', 'attributes': {}}]
    """
    given = []
    try:
        given.append(json.loads(text))
    except ValueError:
        for k, line in enumerate(text.splitlines(), start=1):
            try:
                given += [json.loads(line)] if line.strip() else []
            except ValueError as error:
                raise ValueError(f"line {k} is not JSON: {error}; a trace has a span on each line") from None
    return list(_spans(given))


def _spans(given: Any) -> Iterator[dict[str, Any]]:
    if isinstance(given, list):
        for item in given:
            yield from _spans(item)
        return
    inside = [given[key] for key in ("resourceSpans", "scopeSpans", "spans", "data") if key in given]
    if not inside:
        yield given
    for item in inside:
        yield from _spans(item)


def questions_of(spans: Iterable[Mapping[str, Any]]) -> dict[str, Question]:
    """What each answer of a trace was asked and told, by the id of the span that wrote it.

    An answer is what a span of the kind LLM wrote, if it is more than a call of a tool. Its sources are the documents
    that were retrieved and the tools' results, where the messages hold them word for word, and earlier turns of the
    chat. Where no message holds any, or a trace has no such span, a prompt of the retrieved documents is made, as
    ``c2fa.cite`` makes it.

    Examples
    --------
    >>> attributes = {"openinference.span.kind": "RETRIEVER", "retrieval.documents.0.document.content": "It rains."}
    >>> chain = {"openinference.span.kind": "CHAIN", "input.value": "Weather?", "output.value": "Rain."}
    >>> trace = [{"span_id": "r", "attributes": attributes}, {"span_id": "c", "attributes": chain}]
    >>> [(span, q.documents, q.query, q.answer) for span, q in questions_of(trace).items()]
    [('c', {'r 0': 'It rains.'}, 'Weather?', 'Rain.')]
    """
    read = list(map(_Span.of, spans))
    questions: dict[str, Question] = {}
    for trace in dict.fromkeys(span.trace for span in read):
        own = [span for span in read if span.trace == trace]
        retrieved, results = _documents(own)
        written = [span for span in own if span.kind == "LLM" and _answer(span)]
        for span in written:
            chat = span.messages("input") or [{"role": "user", "content": span.text("input")}]
            inside = [d for d in (*retrieved, *results) if any(d.text in (m["content"] or "") for m in chat)]
            asked = next((m["content"] for m in reversed(chat) if m["role"] == "user"), "")
            try:
                questions[span.id] = chat_question(chat, inside or None, _answer(span))
            except ValueError:  # nothing of the chat can be removed
                if retrieved and asked:
                    questions[span.id] = Question(retrieved, asked, _answer(span))
        around = [s for s in own if s.kind in ("CHAIN", "AGENT") and s.text("input") and s.text("output").strip()]
        if not written and retrieved and around:
            outermost = min(around, key=lambda span: span.inner)
            question = Question(retrieved, outermost.text("input"), outermost.text("output"))
            questions[outermost.id] = question
    if not questions:
        raise ValueError(
            "no span of the trace has an answer and something that it may rest on: an LLM span needs "
            "llm.output_messages, and documents, tools' results or earlier turns in its llm.input_messages; a CHAIN or "
            "AGENT needs input.value, output.value and documents that were retrieved"
        )
    return questions


def _answer(span: _Span) -> str:
    text = "".join(message["content"] for message in span.messages("output"))
    return text.strip() or ("" if _listed(span.attributes, "llm.output_messages") else span.text("output").strip())


def _documents(spans: Sequence[_Span]) -> tuple[list[Document], list[Document]]:
    """The documents that spans retrieved, and what tools returned; each says in which spans it is, and where."""
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
            taken = {document.id for document in (*retrieved.values(), *results.values())}
            own = f"{tool} ({span.id})" if tool in taken else tool
            results[text] = Document(own, text, {"tool": tool, "spans": [[span.id, None]]})
    return list(retrieved.values()), [d for text, d in results.items() if text not in retrieved]


# ---------------------------------------------------------------------------------- out


def span_annotations(cited: Mapping[str, Explanation]) -> list[dict[str, Any]]:
    """Scores of the documents of explained answers, as annotations of the spans that retrieved them.

    They have the shape that Phoenix takes at ``/v1/document_annotations``, and those of tools' results, which have no
    ``document_position``, at ``/v1/span_annotations``. A score is how much likelier, in nats, the document makes the
    answer; the explanation has the statements that rest on it.
    """
    found = []
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
            more = {"answer_span_id": span, "stderr": stderr}
            for own, place in json.loads(document.known).get("spans", []):
                at = {"span_id": own} if place is None else {"span_id": own, "document_position": place}
                found.append({**at, "name": "c2fa", "annotator_kind": "CODE", "result": result, "metadata": more})
    return found
