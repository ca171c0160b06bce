"""The benchmark of citing: its items, its rows that are asked once, its file that goes on, its tables."""

from __future__ import annotations

import gzip
import json
import lzma
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("experiments", reason="the benchmarks are in a clone, not in a source distribution")
from benchmarks.cite import asking, command, items, planted, recipes, reference, rows, scoring, scouting, tables

import c2fa

SENTENCES = [
    "Basel lies on the Rhine.",
    "Its port is large.",
    "The fair is old.",
    "Many people work there.",
    "Trams are green.",
    "The zoo has otters.",
]


class Fake:
    """Its log-probabilities depend on which sentences the prompt holds, and on nothing else."""

    def __init__(self):
        self.prompts = Counter()

    def generate(self, prompt):
        return "It is Basel, the port."

    def pieces(self, answer):
        return answer.replace(" ", "| ").split("|")

    def score(self, prompts, answer):
        self.prompts.update(prompts)
        holds = np.array([[text in p for text in ("Basel lies", "port", "Trams", "It is otherwise")] for p in prompts])
        stands = np.array([p.count("stands") for p in prompts])
        worth = -6.0 + 2.0 * holds[:, 0] + 0.5 * holds[:, 1] * holds[:, 2] + 0.2 * holds[:, 3] + 0.5 * stands
        return worth[:, None] * np.ones(len(self.pieces(answer)))


@pytest.fixture
def data(tmp_path):
    """Files in the formats of QED and of NQ with gold passages."""

    def question(i, sentence):
        text = " ".join(SENTENCES)
        start = text.index(sentence)
        return {
            "example_id": i,
            "title_text": f"Title {i}",
            "question_text": f"question {i}",
            "paragraph_text": text,
            "sentence_starts": [0, 1, 2, 3, 4] if i % 4 else [0],
            "annotation": {"selected_sentence": {"start": start, "string": sentence}} if i % 5 else {},
        }

    def passage(i):
        text = f"Here stands answer {i} in passage {i}. It is otherwise short. Nothing follows it."
        return {"question": f"question {i}", "answers": [f"Answer {i} in"], "ctxs": [{"title": f"T{i}", "text": text}]}

    with lzma.open(tmp_path / "qed_dev.jsonl.xz", "wt") as file:
        file.writelines(json.dumps(question(i, SENTENCES[i % 6])) + "\n" for i in range(40))
    with gzip.open(tmp_path / "nq_open_oracle.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(passage(i)) + "\n" for i in range(60))
    return tmp_path


def test_no_question_is_in_both_halves(data):
    first, second = (items.load(data, ("qed", "nq5"), half, 99) for half in items.HALVES)
    assert {item.query for item in first}.isdisjoint(
        item.query for item in second if item.family == "qed" or int(item.query.split()[1]) < 40
    )
    for half, numbers in ((first, range(20)), (second, range(20, 40))):
        asked = {int(item.query.split()[1]) for item in half if item.family == "qed"}
        assert asked == {i for i in numbers if i % 4 and i % 5}
    assert items.load(data, ("qed",), "first", 3) == first[:3]


def test_a_context_holds_the_passage_that_answers_once_and_in_any_place(data):
    found = items.load(data, ("nq5",), "second", 30)
    places = Counter()
    for item in found:
        number = item.query.split()[1]
        assert len(item.documents) == 5
        assert [title for title, text in item.documents.items() if f"answer {number} " in text] == [item.source]
        places[list(item.documents).index(item.source)] += 1
    assert len(places) == 5


ANSWER = "It is Basel, the port."


def context_of(item, levels=rows.LEVELS):
    return rows.Context.of(item, ANSWER, Fake().pieces(ANSWER), levels)


def case_of(item, lm):
    context = context_of(item)
    return scoring.Case(rows.Rows(context, lm=lm, item=item), context.masked())


def score(lm, item, settings):
    record, _, _ = scoring.score_item(lm, context_of(item, settings.levels), item, {}, [settings])
    return record, {tuple(row[:4]): row[4] for row in record["scores"]}


def test_evidence_is_the_sentence_that_was_marked_or_holds_the_answer(data):
    [qed] = [item for item in items.load(data, ("qed",), "first", 99) if item.name == "qed 1"]
    context = context_of(qed)
    assert (context.source, context.evidence) == (0, (1,))
    nq = items.load(data, ("nq5",), "second", 1)[0]
    context = context_of(nq)
    [sentence] = context.evidence
    assert list(nq.documents)[context.source] == nq.source
    assert context.masked().structure.owners(0)[sentence] == context.source


@pytest.mark.parametrize("levels", [rows.LEVELS, rows.WORDS])
def test_a_stand_in_is_cut_as_the_texts_are_and_its_rows_are_theirs(data, levels):
    item = items.load(data, ("nq5",), "second", 1)[0]
    context = context_of(item, levels)
    real = c2fa.maskers.Text(levels=levels, mask=None)(dict(item.documents))
    masked = context.masked(levels)
    assert masked.structure.widths == real.structure.widths
    assert all((a == b).all() for a, b in zip(masked.structure.parents, real.structure.parents, strict=True))
    masks = np.random.default_rng(0).random((9, context.leaves)) < 0.5
    prompts = [rows.message(left, "X?") for left in masked.inputs(masks, len(levels) - 1)]
    assert (context.masks(prompts) == masks).all()
    lm = Fake()
    scores = rows.Rows(context, lm=lm, item=item).score(prompts, ANSWER)
    texts = [rows.message(left, item.query) for left in real.inputs(masks, len(levels) - 1)]
    assert set(lm.prompts) == set(texts)
    assert scores == pytest.approx(Fake().score(texts, ANSWER), abs=1 / 1024)


def test_every_row_is_asked_once_and_every_method_gives_what_it_gives_alone(data):
    item = items.load(data, ("nq5",), "second", 1)[0]
    lm = Fake()
    record, found = score(lm, item, scoring.Settings((16, 24), 2))
    assert record["rows"] == lm.prompts.total()
    assert len(found) == len(record["scores"])
    case = case_of(item, Fake())
    sentences = np.zeros(case.masked.structure.leaves)
    sentences[list(case.rows.context.evidence)] = 1
    for method in scoring.METHODS:
        alone = case_of(item, Fake())
        _, low = alone.values(method, 16, 1)
        assert alone.rows.lm.prompts.total() <= 16
        assert found[method, 16, 1, "top1 recall"] == c2fa.metrics.evidence_recall(low, sentences, 1)
        drop = case.measured(c2fa.metrics.topk_drop(low, 3))
        assert found[method, 16, 1, "top3 drop"] == pytest.approx(drop)


def test_intervals_are_compared_with_rows_of_their_own_that_are_asked_in_one_call(data):
    item = items.load(data, ("nq5",), "second", 1)[0]
    lm = Fake()
    calls = []
    lm.score = lambda prompts, answer: calls.append(len(prompts)) or Fake.score(lm, prompts, answer)
    record, found = score(lm, item, scoring.Settings((24,), 1, ("intervals",), reference=50))
    assert calls[0] == max(calls) >= 50
    assert record["rows"] == sum(calls)
    case = case_of(item, Fake())
    e = case.explained(24, 0, method="c2fa")
    # All 32 masks of five documents are fewer than the reference's rows.
    every = reference.masks(5, 50, 0)
    truth = np.linalg.lstsq(np.c_[np.ones(32), every], case.outputs(every, 0), rcond=None)[0][1:]
    share = np.mean(abs(e.high - truth) <= 1.6449 * e.stderr[0] + 1e-9 * abs(truth).max())
    assert found["c2fa", 24, 0, "coverage of documents"] == share
    assert {name for _, _, _, name in found} == {
        "coverage of sentences",
        "coverage of sentences, reference as exact",
        "coverage of documents",
        "coverage of documents, as sums of sentences",
        "coverage of documents, Shapley values",
        "coverage of sentences, Owen values",
    }
    assert {name for name, *_ in found} == {"owen", "c2fa"}


def test_what_sentences_bring_in_random_orders_is_their_owen_value_and_as_far_off_as_it_says():
    s = c2fa.Structure.from_groups("aaabb")
    rng = np.random.default_rng(1)
    worth = rng.normal(size=2**5)

    def game(masks):
        return worth[np.asarray(masks, dtype=int) @ (1 << np.arange(5))]

    every = reference.masks(5, 32, 0)
    whole = c2fa.Explainer(game, c2fa.maskers.Array(s), method="owen", budget=32, target=0, progress=False)
    exact = whole(np.ones(5, dtype=int))
    found = [reference.joining(s, 200, seed) for seed in range(300)]
    said = [one.values(game(one.masks)) for one in found]
    assert np.mean([one.values for one in said], axis=0) == pytest.approx(exact.low, abs=0.03)
    spread = np.mean([np.square(one.values - exact.low) for one in said], axis=0)
    assert spread == pytest.approx(np.mean([np.diag(one.covariance) for one in said], axis=0), rel=0.25)
    for one in found[:3]:
        joined = one.masks.reshape(-1, 2, 6, 5)
        assert (joined[:, 0] == ~joined[:, 1]).all()
        whole_parts = [c2fa.Structure.from_groups("aaabb").sums(row.astype(float), 0) for row in joined[0, 0]]
        assert sum(0 < a < 3 and 0 < b < 2 for a, b in whole_parts) == 0
    flat = c2fa.Explainer(
        game, c2fa.maskers.Array(c2fa.Structure.flat(5)), method="shapley", budget=32, target=0, progress=False
    )
    assert reference.shapley(every, game(every)).values == pytest.approx(flat(np.ones(5, dtype=int)).low)


def test_arc_jsd_is_the_divergence_of_what_was_said_from_all_else():
    logs = np.log(np.random.default_rng(0).uniform(0.05, 0.95, size=(5, 3)))

    def ask(masks):  # without the sentence i, row i; with all, the last
        return np.array([logs[-1] if mask.all() else logs[np.flatnonzero(~mask)[0]] for mask in masks])

    def kullback(p, q):
        return sum(a * np.log(a / b) for a, b in zip(p, q, strict=True))

    def literal(i):
        total = 0.0
        for p, q in zip(np.exp(logs[-1]), np.exp(logs[i]), strict=True):
            one, other = np.array([p, 1 - p]), np.array([q, 1 - q])
            middle = (one + other) / 2
            total += (kullback(one, middle) + kullback(other, middle)) / 2
        return total

    values = recipes.arc_jsd(ask, 4, 6, np.random.default_rng(0))
    assert values == pytest.approx([literal(i) for i in range(4)])
    assert np.count_nonzero(recipes.arc_jsd(ask, 4, 4, np.random.default_rng(0))) == 2


def test_camab_finds_the_arms_that_pay_and_is_a_regression_on_what_it_asked():
    asked = []

    def ask(masks):
        asked.extend(masks.tolist())
        return np.log(0.1 + 0.5 * masks[:, [2]] + 0.2 * masks[:, [5]])

    values = recipes.camab(ask, 8, 60, np.random.default_rng(1))
    assert len(asked) == 60
    assert np.argsort(-values)[:2].tolist() == [2, 5]
    masks = np.array(asked[2:], dtype=float)
    rewards = (0.5 * masks[:, 2] + 0.2 * masks[:, 5]) / 0.7
    assert values == pytest.approx(np.linalg.solve(np.eye(8) + masks.T @ masks, masks.T @ rewards))
    assert set(masks.sum(axis=1)) == {4}
    fewer = []
    recipes.camab(lambda masks: fewer.extend(masks.tolist()) or ask(masks), 8, 30, np.random.default_rng(1))
    assert fewer == asked[:30]


def test_the_reference_is_as_far_off_as_it_says():
    rng = np.random.default_rng(0)
    every = reference.masks(6, 64, 0)
    outputs = every @ rng.normal(size=6) + 2.0 * every[:, 0] * every[:, 1] + rng.normal(size=64)
    whole = reference.Reference.of(every, outputs)
    assert not whole.covariance.any()
    at = {mask.tobytes(): i for i, mask in enumerate(every)}
    draws = [reference.masks(6, 40, seed) for seed in range(400)]
    some = [reference.Reference.of(masks, outputs[[at[mask.tobytes()] for mask in masks]]) for masks in draws]
    spread = np.mean([np.square(one.values - whole.values) for one in some], axis=0)
    said = np.mean([np.diag(one.covariance) for one in some], axis=0)
    assert spread == pytest.approx(said, rel=0.25)
    owners = np.array([0, 0, 0, 1, 1, 1])
    sums = some[0].sums(owners)
    assert sums.values == pytest.approx([some[0].values[:3].sum(), some[0].values[3:].sum()])
    assert sums.covariance[0, 0] == pytest.approx(some[0].covariance[:3, :3].sum())


def test_words_are_scored_inside_the_sentences_that_the_answer_needs(data):
    item = items.load(data, ("qed",), "second", 1)[0]
    lm = Fake()
    record, found = score(lm, item, scoring.Settings((48,), 1, ("words",)))
    assert record["rows"] == lm.prompts.total()
    assert {name for name, *_ in found} == {"c2fa-focused", "context-cite"}
    context = context_of(item, rows.WORDS)
    case = scoring.Case(rows.Rows(context, lm=Fake(), item=item), context.masked())
    assert scoring._needed(case).tolist()[0] == 0  # "Basel lies …" is worth most
    low = case.explained(48, 0, levels=rows.WORDS).low
    texts = item.documents[item.source].split()
    kept = " ".join(text for i, text in enumerate(texts) if i != np.argmax(low))
    whole, without = Fake().score([item.documents[item.source], kept], ANSWER).sum(axis=1)
    assert found["c2fa-focused", 48, 0, "top1 drop of words"] == pytest.approx(whole - without)


def run(monkeypatch, data, *more, lm=None):
    lm = Fake() if lm is None else lm
    monkeypatch.setattr(command, "model", lambda given: lm)
    options = ["--data", str(data), "--record", str(data / "rows.xz"), "--rows", "16,32", "--model", "hf:x"]
    command.main([*options, "--families", "qed,nq5", "--items", "3", *more])
    return lm


def frozen(*paths, more=("--workers", "0")):
    command.main(["--frozen", *map(str, paths), *more])


def test_a_recording_that_was_cut_goes_on_and_gives_the_tables_of_a_run_in_one_piece(monkeypatch, data, capsys):
    path, whole = data / "rows.xz", data / "whole.xz"
    run(monkeypatch, data, "--items", "2")
    path.write_bytes(path.read_bytes()[:-20])  # killed while it wrote the last context
    assert len(rows.Record(path).contexts) == 3
    asked = run(monkeypatch, data)
    assert not run(monkeypatch, data).prompts
    record = rows.Record(path)
    assert len(record.contexts) == 6
    assert asked.prompts.total() == sum(len(one.rows) for one in list(record.contexts.values())[3:])
    in_one_piece = run(monkeypatch, data, "--record", str(whole))
    assert in_one_piece.prompts.total() == sum(len(one.rows) for one in record.contexts.values())
    capsys.readouterr()
    frozen(path)
    printed = capsys.readouterr().out
    assert "qed: 3 items, 1.0 documents and 6.0 sentences on average" in printed
    assert "lds of documents" in printed
    assert printed.startswith(f"{path}: model x, ")
    for more in (("--workers", "0"), ("--workers", "2")):
        frozen(whole, more=more)
        assert sorted(capsys.readouterr().out.splitlines()[1:]) == sorted(printed.splitlines()[1:])
    with pytest.raises(SystemExit, match="was made with another half: give another file"):
        run(monkeypatch, data, "--half", "first")


def test_more_can_be_recorded_later(monkeypatch, data, capsys):
    path = data / "rows.xz"
    run(monkeypatch, data, "--methods", "c2fa")
    before = rows.Record(path)
    with pytest.raises(ValueError, match=r"has \d+ rows of 'qed \d+' and lacks \d+ that are asked for; choose among"):
        frozen(path, more=("--workers", "0", "--methods", "context-cite"))
    asked = run(monkeypatch, data, "--methods", "context-cite")
    after = rows.Record(path)
    both = sum(len(one.rows) for one in after.contexts.values())
    assert sum(len(one.rows) for one in before.contexts.values()) + asked.prompts.total() == both
    capsys.readouterr()
    frozen(path)
    assert {"c2fa", "context-cite"} <= set(capsys.readouterr().out.split())
    run(monkeypatch, data, "--parts", "intervals", "--reference", "40")
    capsys.readouterr()
    frozen(path)
    printed = capsys.readouterr().out
    assert "coverage of documents" in printed
    assert "nan" not in printed


def test_a_method_of_ones_own_chooses_from_the_pool(monkeypatch, data):
    run(monkeypatch, data, "--families", "nq5", "--items", "1")
    [one] = rows.Record(data / "rows.xz").contexts.values()
    kept = rows.Rows(one.context, one.rows)
    masks = kept.pool()
    assert masks.shape == (len(one.rows), one.context.leaves)
    assert len(np.unique(masks, axis=0)) == len(masks)
    item = items.load(data, ("nq5",), "second", 1)[0]
    texts = c2fa.maskers.Text(levels=rows.LEVELS, mask=None)(dict(item.documents)).inputs(masks, 1)
    expected = Fake().score([rows.message(left, item.query) for left in texts], ANSWER)
    assert kept.at(masks) == pytest.approx(expected, abs=1 / 1024)
    with pytest.raises(ValueError, match="these are rows of"):
        kept.score(["X0"], "Another answer.")


def test_what_is_no_file_of_rows_is_refused(data):
    (data / "text.xz").write_text("rows")
    with pytest.raises(SystemExit, match="is no file of rows"):
        frozen(data / "text.xz")
    with pytest.raises(SystemExit, match="has no rows; make them with --record"):
        frozen(data / "none.xz")
    with pytest.raises(SystemExit, match="give --frozen FILE"):
        command.main(["--data", str(data)])


def test_rows_are_counted_before_they_are_asked(monkeypatch, data, capsys):
    command.main(["--data", str(data), "--families", "qed,nq5", "--items", "3", "--rows", "16,32", "--dry"])
    counted = capsys.readouterr().out
    run(monkeypatch, data)
    record = rows.Record(data / "rows.xz")
    for family in ("qed", "nq5"):
        count = sum(len(one.rows) for one in record.contexts.values() if one.context.family == family)
        [line] = [line for line in counted.splitlines() if line.startswith(family)]
        assert int(line.split(", ")[1].split()[0]) == pytest.approx(count, rel=0.15)


def test_no_item_is_begun_after_the_time(monkeypatch, data):
    lm = run(monkeypatch, data, "--seconds", "0")
    assert not lm.prompts


def test_workers_record_what_one_process_records(monkeypatch, data):
    def recorded(name, *more):
        path = data / name
        run(monkeypatch, data, "--families", "nq5", "--items", "2", "--record", str(path), *more)
        found = rows.Record(path).contexts
        return {name: {key: row.tolist() for key, row in one.rows.items()} for name, one in found.items()}

    assert recorded("alone.xz") == recorded("workers.xz", "--workers", "2")


def refuse(lm, what):
    raise ValueError(f"no {what}")


def test_a_worker_that_fails_says_why():
    with pytest.raises(RuntimeError, match="a worker failed: ValueError: no luck"):
        list(asking.run_all(refuse, [("luck",)], Fake(), 1, 60.0))


def test_differences_are_paired_over_items_after_the_seeds():
    records = [
        {
            "item": f"i{i}",
            "scores": [
                [method, 32, seed, "m", (i + seed + (0.5 if method == "c2fa" else 0.0)) if i else None]
                for method in ("c2fa", "context-cite")
                for seed in (0, 1)
            ],
        }
        for i in range(4)
    ]
    found = tables.cells(records)
    assert found["c2fa", 32, "m"] == {"i1": 2.0, "i2": 3.0, "i3": 4.0}
    mean, low, high = tables.difference(found["c2fa", 32, "m"], found["context-cite", 32, "m"])
    assert (mean, low, high) == pytest.approx((0.5, 0.5, 0.5))
    assert np.isnan(tables.difference({"a": 1.0}, {"b": 1.0})[0])


# -- with a real network, small and untrained --------------------------------------------------------


@pytest.fixture
def causal_lm():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE

    core = Tokenizer(BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
    core.train_from_iterator([" ".join(SENTENCES)], trainer)
    template = (
        "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", chat_template=template
    )
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), eos_token_id=1, max_position_embeddings=4096, initializer_range=0.4, **sizes
    )
    return c2fa.models.CausalLM(transformers.LlamaForCausalLM(config).eval(), tokenizer, max_new_tokens=12)


def test_speed_is_printed_for_every_way(causal_lm, data):
    from benchmarks.cite import speed

    some = items.load(data, ("nq5",), "second", 3)
    printed = list(speed.lines(causal_lm, some, ["Its port is large."] * 3, 8))
    assert sum("rows a second" in line for line in printed) == 3
    assert sum("beside the network" in line for line in printed) == 3
    assert any("3 answers written" in line and "3 the same" in line for line in printed)


def test_the_plain_loop_has_the_scores_that_cite_has(causal_lm):
    from benchmarks.cite import speed

    prompts = [f"Read this: {text}" for text in SENTENCES[:3]]
    found = speed.plain(causal_lm, prompts, "Its port is large.")
    wanted = causal_lm.score(prompts, "Its port is large.")
    np.testing.assert_allclose(found.sum(axis=1), wanted.sum(axis=1), atol=1e-3)


def test_speed_needs_neither_weights_nor_data():
    pytest.importorskip("transformers")
    from benchmarks.cite import speed

    lm = speed.random_model("cpu", "float32", None, layers=1)
    [item], [answer] = speed.made_up(1, documents=2)
    assert list(item.documents) == ["document 0", "document 1"]
    assert np.isfinite(lm.score([item.query], answer)).all()


class Planted:
    """Says what the prompt tells of Morn, knows that the sky is blue, and of the rest nothing."""

    def generate(self, prompt):
        if "sky" in prompt:
            return "The clear sky is blue. Yes."
        return "Ada Morn built the long bridge. Yes." if "Morn" in prompt else "Nobody knows who did it. No."

    def pieces(self, answer):
        return [answer]

    def score(self, prompts, answer):
        return [[-1.0 if "blue" in answer or "Morn" in prompt else -20.0] for prompt in prompts]


def test_planted_citations_are_told_apart(tmp_path, monkeypatch, capsys):
    passages = {"a": "Bridges built long ago are long.", "b": "Ada Morn built it.", "c": "Swans swim."}
    item = items.Item("nq3 0", "nq3", passages, "Who built it?", "b", ["ada morn"])
    others = [
        items.Item(f"nq3 {i}", "nq3", {"a": "Bridges.", f"s{i}": "Swans swim."}, "Who?", f"s{i}", ["morn"])
        for i in (1, 2)
    ]
    facts = {"Which colour has the sky?": "blue", "Who did it?": "Nobody else"}
    found = list(planted.plants(Planted(), [item, *others], facts))
    assert [plant.kind for plant in found] == ["right", "twice", "known"]
    assert found[0].truth == ("not used", "used", "not used")
    assert found[1].truth == ("one of several", "one of several", "not used")
    # Where it can be said without the passage, or needs another too, nothing is planted.
    again = items.Item("nq3 3", "nq3", {**passages, "c": "Morn swims."}, "Who built it?", "b", ["ada morn"])
    assert [plant.kind for plant in planted.plants(Planted(), [again, *others], {})] == []
    monkeypatch.setattr(planted, "load", lambda *_: [item, item, *others])
    monkeypatch.setattr(planted, "FACTS", facts)
    monkeypatch.setattr(planted, "model", lambda given: Planted())
    path = str(tmp_path / "planted.xz")
    planted.main(["--model", "hf:x", "--record", path, "--half", "first"])
    printed = capsys.readouterr().out.splitlines()[1:]
    assert printed[0].startswith("AUROC of used against not used, 3 and 3 citations")
    assert printed[1] == "  verify 1.000"
    assert {line.split()[0] for line in printed[3:]} == {"right:", "twice:", "known:"}
    for line in printed[3:]:
        count, of = line.split(" right ")[1].split(" (")[0].split(" of ")
        assert count == of
    planted.main(["--frozen", path])
    assert capsys.readouterr().out.splitlines()[1:] == printed


class Blurred(Fake):
    """A smaller model, which sees the same less sharply, in other pieces, and on another scale."""

    def pieces(self, answer):
        return [answer]

    def score(self, prompts, answer):
        return 0.1 * super().score(prompts, answer) + 0.05 * np.array([[p.count("zoo")] for p in prompts])


def test_a_scout_is_scored_beside_those_that_mislead(data):
    some = items.load(data, ("nq10",), "second", 2)
    large, small = scouting.Remembering(Fake()), scouting.Remembering(Blurred())
    first, second = [scouting.Asked(item, "It is Basel, the port.") for item in some]
    found = [scouting.asked_scores(large, small, first, second, (8, 16), 64, 32) for _ in range(2)]
    assert found[0] == found[1]
    assert max(large.lm.prompts.values()) == max(small.lm.prompts.values()) == 1
    one = found[0]
    assert one[scouting.SCOUTED, 8] > one[scouting.ALONE, 8] - 0.02
    assert {label for label, _ in one} >= {"negated", "shuffled", "another question", "the scout's own"}
    printed = list(scouting.lines(found, (8, 16)))
    assert printed[0].startswith("2 questions")
    assert sum("with a scout" in line for line in printed) == 2
    assert "8 for 16 rows" in printed[-1]


def test_recorded_rows_scout_without_a_model(capsys):
    files = [f"experiments/results/cite/{name}.xz" for name in ("qwen", "smollm2")]
    scouting.main(["--frozen", *files, "--families", "qed", "--rows", "16,32", "--items", "3"])
    printed = capsys.readouterr().out
    assert printed.startswith("3 questions; LDS of sentences")
    assert "16 for 32 rows" in printed
    with pytest.raises(SystemExit, match="have no question of nq99 in common"):
        scouting.main(["--frozen", *files, "--families", "nq99"])
    with pytest.raises(SystemExit, match="give --model and --scout, or --frozen"):
        scouting.main([])


def test_real_networks_scout(causal_lm, data):
    some = items.load(data, ("nq10",), "second", 2)
    asked = scouting.answered(causal_lm, some)
    assert len(asked) == 2
    lm = scouting.Remembering(causal_lm)
    found = scouting.asked_scores(lm, lm, *asked, (8,), 24, 16)
    assert all(-1.0 <= value <= 1.0 for value in found.values())
    assert lm.asked == len(lm.known)


def test_what_a_real_network_looks_at_is_scored_beside_its_rows(causal_lm, data):
    [item] = items.load(data, ("nq5",), "second", 1)
    answer = "It is otherwise short."
    context = rows.Context.of(item, answer, causal_lm.pieces(answer))
    case = scoring.Case(rows.Rows(context, lm=causal_lm, item=item), context.masked())
    found, looked = scouting.attention_scores(causal_lm, case, item, np.ones(1), (8, 12), 32)
    assert {n for label, n in found if label == "the scout's own"} == {1}
    assert all(-1.0 <= value <= 1.0 for value in found.values())
    assert looked.shape == (case.masked.structure.leaves,)
    assert (looked > 0.0).all(), "a network without training looks everywhere"
