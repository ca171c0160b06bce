"""Packed batches: the same masks and answers as one by one, full batches, and poison set aside."""

from __future__ import annotations

import numpy as np
import pytest

import c2fa
from batch_helpers import NAN, RAISES, STRUCTURE, Model, explainer, inputs
from c2fa.batch.isolation import Health, Isolation, ModelDownError, NoAnswerError, Report
from c2fa.batch.packing import Item, Outcome, packed


def pack(explainer: c2fa.Explainer, xs: list[object], **options: object) -> list[Outcome]:
    health = Health(options.pop("patience", 60.0))  # type: ignore[arg-type]
    isolation = Isolation(options.pop("tries", 3), health, options.pop("report", Report()))  # type: ignore[arg-type]
    found = packed(explainer, (Item(i, x) for i, x in enumerate(xs)), isolation=isolation, **options)  # type: ignore[arg-type]
    return sorted(found, key=lambda o: o.index)


def test_packed_is_one_by_one_to_the_last_bit() -> None:
    xs = inputs(40)
    alone = [explainer(budget=(8, 24))(x) for x in xs]
    for batch_size in (1, 7, 64, 1000):
        for one, other in zip(alone, pack(explainer(), xs, batch_size=batch_size), strict=True):
            assert other.explanation is not None
            assert other.explanation.to_json() == one.to_json()


def test_several_batches_in_flight_give_the_same() -> None:
    slow = Model(delay=0.002)
    xs = inputs(30)
    xs[4][0] = RAISES
    found = pack(explainer(slow), xs, batch_size=16, in_flight=4)
    assert [o.index for o in found if o.explanation is None] == [4]
    for x, outcome in zip(xs, found, strict=True):
        if outcome.explanation is not None:
            assert outcome.explanation.to_json() == explainer()(x).to_json()
    with pytest.raises(ValueError, match="in_flight must be a whole number of at least 1; got 0"):
        pack(explainer(), xs, in_flight=0)


def test_batches_are_full() -> None:
    sizes = []

    def model(batch: np.ndarray) -> np.ndarray:
        sizes.append(len(batch))
        return batch.sum(axis=1)

    made = c2fa.Explainer(model, c2fa.maskers.Array(STRUCTURE), budget=(8, 24))
    pack(made, inputs(100), batch_size=64)
    assert max(sizes) == 64
    assert sum(sizes) > 0.9 * 64 * len(sizes)


def test_memory_does_not_depend_on_the_number_of_inputs() -> None:
    read = done = most = 0

    def stream() -> object:
        nonlocal read
        for i, x in enumerate(inputs(200)):
            read = i + 1
            yield Item(i, x)

    for _ in packed(explainer(), stream(), batch_size=32):  # type: ignore[arg-type]
        done += 1
        most = max(most, read - done)
    assert done == 200
    assert most < 40


def test_lists_texts_and_frames_are_joined() -> None:
    pd = pytest.importorskip("pandas")
    texts = ["Good. Bad luck!", "Not good at all. But cheap.", "Fine."]

    def words(batch: list[str]) -> np.ndarray:
        return np.array([t.count("oo") - 0.5 * t.count("[MASK]") for t in batch])

    made = c2fa.Explainer(words, c2fa.maskers.Text(), budget=(4, 20))
    for text, outcome in zip(texts, pack(made, texts), strict=True):
        assert outcome.explanation is not None
        assert outcome.explanation.to_json() == made(text).to_json()

    frame = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "c": ["u", "v", "u"]})

    def rows(batch: object) -> np.ndarray:
        return (batch.a * batch.b + (batch.c == "u")).to_numpy()  # type: ignore[attr-defined]

    made = c2fa.Explainer(rows, c2fa.maskers.Tabular({"n": ["a", "b"]}, background=frame), budget=(4, 8))
    xs = [frame.iloc[i : i + 1] for i in range(3)]
    for x, outcome in zip(xs, pack(made, xs), strict=True):
        assert outcome.explanation is not None
        assert np.array_equal(outcome.explanation.low, made(x).low)


def test_tensors_are_joined() -> None:
    torch = pytest.importorskip("torch")
    masker = c2fa.maskers.Custom(STRUCTURE, lambda x, m, k: torch.tensor(STRUCTURE.expand(m, k) * x))
    made = c2fa.Explainer(lambda batch: (batch * 2).sum(dim=1), masker, budget=(4, 8))
    for x, outcome in zip(inputs(5), pack(made, inputs(5)), strict=True):
        assert outcome.explanation is not None
        assert np.array_equal(outcome.explanation.low, made(x).low)


def test_arrays_of_different_shapes_go_in_batches_of_their_own() -> None:
    masker = c2fa.maskers.Custom(lambda x: c2fa.Structure.from_groups(range(len(x))), lambda x, m, k: m * np.asarray(x))
    made = c2fa.Explainer(lambda batch: batch.sum(axis=1), masker, budget=9)
    found = pack(made, [np.ones(3), np.ones(5), np.ones(3)])
    assert [o.error for o in found] == [None] * 3


def test_a_poisoned_input_is_set_aside_and_the_others_are_as_before() -> None:
    xs = inputs(12)
    xs[5][0], xs[7][0] = RAISES, NAN
    report = Report()
    found = pack(explainer(), [*xs[:9], "no vector", *xs[9:]], batch_size=64, tries=2, report=report)
    assert [o.index for o in found if o.explanation is None] == [5, 7, 9]
    assert found[5].error == "ValueError: a poisoned row (sent alone 2 times)"
    assert "NaN or infinity" in str(found[7].error)
    assert "vector" in str(found[9].error)
    for x, outcome in zip(xs[:5], found[:5], strict=True):
        assert outcome.explanation is not None
        assert outcome.explanation.to_json() == explainer()(x).to_json()
    assert report.resent > 0


def test_dropping_bad_rows_keeps_the_input() -> None:
    xs = inputs(3)
    xs[1][0] = RAISES
    masker = c2fa.maskers.Array(STRUCTURE)
    made = c2fa.Explainer(Model(), masker, budget=(8, 24), on_error="drop")
    found = pack(made, xs)
    assert found[0].error is None
    assert found[2].error is None
    assert found[1].error is not None  # its prediction itself was dropped


def test_a_model_that_goes_away_for_a_while_costs_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def model(batch: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if 5 <= calls < 16:
            raise ConnectionError("nobody is there")
        return batch.sum(axis=1)

    monkeypatch.setattr("time.sleep", lambda seconds: None)
    made = c2fa.Explainer(model, c2fa.maskers.Array(STRUCTURE), budget=(8, 24))
    assert all(o.error is None for o in pack(made, inputs(20), batch_size=32))


def test_a_model_that_is_gone_for_good_stops_the_run() -> None:
    calls = 0

    def model(batch: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls > 4:
            raise ConnectionError("nobody is there")
        return batch.sum(axis=1)

    made = c2fa.Explainer(model, c2fa.maskers.Array(STRUCTURE), budget=(8, 24))
    with pytest.raises(ModelDownError, match="no longer answers"):
        pack(made, inputs(20), batch_size=32, patience=0.3)

    def never(batch: np.ndarray) -> np.ndarray:
        raise ConnectionError("nobody is there")

    made = c2fa.Explainer(never, c2fa.maskers.Array(STRUCTURE), budget=(8, 24))
    with pytest.raises(NoAnswerError, match=r"has not answered once in 0\.3 s, asked about 10 inputs"):
        pack(made, inputs(20), batch_size=32, patience=0.3)


def test_the_cost_is_each_input_s_own() -> None:
    class Paid:
        cost = 0.0

        def __call__(self, batch: np.ndarray) -> np.ndarray:
            self.cost += 0.01 * len(batch)
            return batch.sum(axis=1)

    made = c2fa.Explainer(Paid(), c2fa.maskers.Array(STRUCTURE), budget=(8, 24))
    report = Report()
    for outcome in pack(made, inputs(10), report=report):
        assert outcome.explanation is not None
        d = outcome.explanation.diagnostics
        assert d.cost == pytest.approx(0.01 * d.sent)
    assert report.cost == pytest.approx(0.01 * report.rows)


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="tries must be at least 1"):
        pack(explainer(), inputs(1), tries=0)
    with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1"):
        pack(explainer(), inputs(1), batch_size=0)


@pytest.mark.parametrize("in_flight", [1, 4])
def test_equal_inputs_of_a_run_are_asked_once(in_flight: int) -> None:
    xs = inputs(4)
    report = Report()
    found = pack(explainer(), [*xs, *xs, *xs], batch_size=1000, in_flight=in_flight, report=report)
    alone = [explainer()(x) for x in xs]
    assert report.rows == sum(e.queries for e in alone)
    assert report.recalled == 2 * report.rows
    for one, other in zip([*alone, *alone, *alone], found, strict=True):
        assert other.explanation is not None
        assert np.array_equal(other.explanation.low, one.low)
        assert other.explanation.queries == one.queries
