"""What maskers know of leaves: said of this input alone, made when looked at, and the same after every journey."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import c2fa
from c2fa import Structure, maskers
from c2fa.asking.fingerprint import fingerprint
from c2fa.asking.masking import Masked, check_masked
from c2fa.showing import codec
from c2fa.views.descriptors import Descriptors, pack, unpack

HALF = "\ud83d"
REVIEWS = [
    "The room wasn't bright at all. I loved the bed!",
    f"Éclair très bon… 部屋は良い。 {HALF}half 👍 (isn&#39;t it)",
    "Fine.",
]


def described(masker: Any, x: Any) -> dict[str, list[Any]]:
    made = Descriptors.of(masker(x))
    assert made is not None
    return dict(made)


def lengths(texts: list[str]) -> list[float]:
    return [float(len(t)) for t in texts]


def explain(x: Any, masker: Any = None, model: Any = lengths) -> c2fa.Explanation:
    return c2fa.Explainer(model, maskers.Text() if masker is None else masker, budget=12)(x)


def custom(describe: Any) -> maskers.Custom:
    """Three letters, which are what a function says they are."""
    s = Structure.from_groups("aab")

    def keep(x: str, masks: Any, level: int) -> list[str]:
        return ["".join(c for c, on in zip(x, row, strict=True) if on) for row in s.expand(masks, level)]

    return maskers.Custom(s, keep, descriptors=describe)


# -- texts -------------------------------------------------------------------------------------------


def test_a_negation_reaches_three_words_and_never_the_next_sentence() -> None:
    table = described(maskers.Text(), "It was not one two three four. Never again. We didn’t like it.")
    negated = [None, None, None, "one", "two", "three", None, None, "again", None, None, "like", "it"]
    assert table["negated"] == negated
    twice = described(maskers.Text(), "No x not a b c d.")
    assert twice["negated"] == [None, "x", "not", "a", "b", "c", None], "the last negation counts"


def test_words_know_their_neighbours_up_to_the_ends_of_their_sentence() -> None:
    table = described(maskers.Text(), '"Good room," he said :) Bad <b>bed</b>')
    assert table["word"] == ["good", "room", "he", "said", ":)", "bad", "bed"]
    several = described(maskers.Text(), {"title": "Good room. Bad bed!", "body": "Cheap"})
    assert several["word"] == ["good", "room", "bad", "bed", "cheap"]
    assert several["before"] == [None, "good", None, "bad", None]
    assert several["after"] == ["room", None, "bed", None, None]
    assert several["pair"] == [None, "good room", None, "bad bed", None]
    assert several["pair_after"] == ["good room", None, "bad bed", None, None]
    assert described(maskers.Text(), "Disappointing, disappointed")["stem"] == ["disap", "disap"]
    assert described(maskers.Text(), "Fine.") == {
        "word": ["fine"],
        "stem": ["fine"],
        "before": [None],
        "after": [None],
        "pair": [None],
        "pair_after": [None],
        "negated": [None],
        "written": ["Aa."],
        "place": [0.0],
    }


def test_only_words_have_word_fields() -> None:
    assert maskers.Text("sentences")("One. Two.").descriptors is None
    pieces = maskers.Text(tokenizer=lambda t: [(0, 4), (4, 8)])
    assert described(pieces, "ungainly")["pair"] == [None, "unga inly"]


def test_half_a_character_is_shown_as_every_file_can_hold_it() -> None:
    table = described(maskers.Text(), REVIEWS[1])
    assert table["word"] == ["éclair", "très", "bon", "部", "屋", "は", "良", "い", "\ufffdhalf", "👍", "isn't", "it"]
    json.dumps(table, ensure_ascii=False).encode()


# -- the other maskers -------------------------------------------------------------------------------


def test_cells_of_every_type() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "age": [40],
            "small": np.array([2], dtype="int8"),
            "pay": [1.5],
            "gone": [np.nan],
            "job": pd.Categorical(["nurse"]),
            "code": pd.Categorical([7], categories=[7, 8]),
            "unknown": pd.Categorical([None], categories=["a"]),
            "city": ["Rome"],
            "none": pd.Series([None], dtype=object),
            "since": pd.to_datetime(["1970-01-02 12:00"]),
            "zone": pd.to_datetime(["1970-01-02 02:00"]).tz_localize("Europe/Rome"),
            "wait": pd.to_timedelta(["36h"]),
            "nat": pd.to_datetime([None]),
            "member": [True],
            "maybe": pd.Series([pd.NA], dtype="boolean"),
            "many": pd.Series([3], dtype="Int64"),
            "month": pd.Series([pd.Period("2024-03")]),
            "essay": ["x" * 101],
            9: [1e300],
        }
    )
    expected = {
        "age": 40.0,
        "small": 2.0,
        "pay": 1.5,
        "gone": "missing",
        "job": "nurse",
        "code": "7",
        "unknown": "missing",
        "city": "Rome",
        "none": "missing",
        "since": 1.5,
        "zone": 1 + 1 / 24,
        "wait": 1.5,
        "nat": "missing",
        "member": "True",
        "maybe": "missing",
        "many": 3.0,
        "month": "2024-03",
        "essay": None,
        "9": 1e300,
    }
    table = described(maskers.Tabular({"who": ["age", "job"]}, frame), frame)
    own = {name: column[j] for j, (name, column) in enumerate(table.items())}
    assert own == expected
    for j, column in enumerate(table.values()):
        assert all(entry is None for leaf, entry in enumerate(column) if leaf != j)
    series = described(maskers.Tabular(background=frame), frame.iloc[0])
    assert series["code"] == table["code"], "a Series takes its types from the background"


def test_cells_of_dicts_vectors_and_polars() -> None:
    cells = {
        "d": Decimal("2.5"),
        "day": date(1970, 1, 11),
        "at": datetime(1970, 1, 2, 1, tzinfo=timezone(timedelta(hours=1))),
        "np": np.datetime64("1970-01-03"),
        "flag": np.bool_(False),
        "inf": float("inf"),
        "list": [1, 2],
        "text": "é",
    }
    table = described(maskers.Tabular(background=cells, strategy="row"), cells)
    own = [column[j] for j, column in enumerate(table.values())]
    assert own == [2.5, 10.0, 1.0, 2.0, "False", None, None, "é"]
    vector = maskers.Tabular(background=np.zeros((2, 2)), names=["a", "b"])
    assert described(vector, np.array([1.0, np.nan])) == {"a": [1.0, None], "b": [None, "missing"]}
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"n": [3], "c": pl.Series(["x"], dtype=pl.Categorical), "t": [datetime(1970, 1, 2)]})
    table = described(maskers.Tabular(background=frame), frame)
    assert table == {"n": [3.0, None, None], "c": [None, "x", None], "t": [None, None, 1.0]}


def test_windows_of_series() -> None:
    x = np.array([[1.0, 2.0, 3.0, 5.0], [np.nan, np.nan, 7.0, np.nan]])
    table = described(maskers.TimeSeries(2, names=["ecg", "window"]), x)
    assert table == {
        "channel": ["ecg", "ecg", "window", "window"],
        "window": ["ecg 1", "ecg 2", "window 1", "window 2"],
        "level of ecg": [1.5, 4.0, None, None],
        "level of window": [None, None, None, 7.0],
    }
    turned = described(maskers.TimeSeries(2, order="windows", names=["ecg", "window"]), x)
    assert turned == {name: [column[i] for i in (0, 2, 1, 3)] for name, column in table.items()}


def test_features_of_bags_and_entries_of_vectors() -> None:
    table = described(maskers.Bag(names=["x", "y"]), [[1.0, 2.0], [3.0, np.nan]])
    assert table == {"x": [1.0, None, 3.0, None], "y": [None, 2.0, None, None]}
    s = Structure.from_groups("aab", names=["u", "v", "w"])
    assert described(maskers.Array(s), [1, 2, 3])["w"] == [None, None, 3.0]
    alike = Structure.from_tree({"left": ["mean"], "right": ["mean"]})
    assert described(maskers.Array(alike), [1, 2]) == {"0 mean": [1.0, None], "1 mean": [None, 2.0]}


def test_looks_and_places_of_super_pixels() -> None:
    image = np.zeros((4, 8, 3), dtype=np.uint8)
    image[:, :4] = (255, 0, 51)
    image[::2, 4:] = 255
    halves = np.repeat([[0, 1]], 4, axis=0).repeat(4, axis=1)
    table = described(maskers.ImageBag([halves] * 2), [image, image])
    assert table == {
        "red": [1.0, 0.5] * 2,
        "green": [0.0, 0.5] * 2,
        "blue": [0.2, 0.5] * 2,
        "row": [0.5] * 4,
        "column": [0.25, 0.75] * 2,
        "texture": [0.0, 0.5] * 2,
    }
    large = np.zeros((600, 1200, 3), dtype=np.uint8)  # shown smaller than its label map is
    large[:, 600:] = 255
    own = maskers.ImageBag(np.repeat([[0, 1]], 600, axis=0).repeat(600, axis=1))
    assert described(own, large)["red"] == [0.0, 1.0]


# -- tables of one's own -----------------------------------------------------------------------------


def test_a_table_is_made_when_it_is_looked_at_and_only_once() -> None:
    calls: list[str] = []

    def describe(x: str) -> dict[str, Any]:
        calls.append(x)
        return {"letter": list(x), "nothing": [None] * 3, "n": np.array([1, 2, np.nan]), "b": (True, np.int8(3), "é")}

    e = explain("abc", custom(describe))
    assert not calls
    assert e.for_target(0).descriptors is e.descriptors
    assert dict(e.descriptors or {}) == {
        "letter": ["a", "b", "c"],
        "nothing": [None, None, None],
        "n": [1.0, 2.0, None],
        "b": ["True", 3.0, "é"],
    }
    assert e.descriptors == copy.deepcopy(e).descriptors == pickle.loads(pickle.dumps(e.descriptors))
    assert calls == ["abc"]
    assert explain("abc", custom(None)).descriptors is None


def test_what_is_said_of_leaves_does_not_change_the_identity_of_a_masker() -> None:
    masker = custom(None)
    assert fingerprint(masker) == fingerprint(dataclasses.replace(masker, descriptors=lambda x: {"letter": list(x)}))


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ([1, 2, 3], r"descriptors must be a dict from field to one entry for each leaf, not \[1, 2, 3\]"),
        ({"a": [1, 2]}, "field 'a' of the descriptors is 2 entries, and there are 3 leaves: give a list"),
        ({"a": "abc"}, "field 'a' of the descriptors is 'abc', and there are 3 leaves"),
        ({"a": 5}, "field 'a' of the descriptors is 5, and there are 3 leaves"),
        ({"a": [1, None, {}]}, "field 'a' of the descriptors has {}: give a text, a number or None"),
    ],
)
def test_wrong_tables_are_refused(table: Any, sentence: str) -> None:
    e = explain("abc", custom(lambda x: table))
    with pytest.raises((TypeError, ValueError), match=sentence):
        dict(e.descriptors or {})


def test_what_is_no_function_is_refused() -> None:
    s = Structure.flat(2)
    with pytest.raises(TypeError, match=r"descriptors must be a function without arguments .* write lambda: in front"):
        check_masked(Masked(s, lambda masks, level: masks, descriptors={"a": [1, 2]}))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="descriptors must be a function from an input to a table"):
        custom({"a": [1, 2, 3]})


# -- journeys ----------------------------------------------------------------------------------------

ENTRIES = st.none() | st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.dictionaries(st.text(max_size=4), st.lists(ENTRIES, min_size=n, max_size=n), min_size=1)
    )
)
def test_what_is_packed_comes_back(table: dict[str, list[Any]]) -> None:
    structure = Structure.flat(len(next(iter(table.values()))))
    made = Descriptors(lambda: table, structure.leaves)
    text = json.dumps(pack(made, structure), ensure_ascii=False, allow_nan=False)
    assert dict(unpack(json.loads(text), structure)) == dict(made) == table


def test_files_keep_what_is_known(tmp_path: Path) -> None:
    for e in (
        *map(explain, REVIEWS),
        explain("abc", custom(lambda x: {"letter": [*x[:2], HALF], "n": [None, 2.5, None]})),
    ):
        e.save(tmp_path / "e.json")
        again = c2fa.load(tmp_path / "e.json")
        assert again.descriptors == dict(e.descriptors or {})
        again.save(tmp_path / "again.json")
        assert c2fa.load(tmp_path / "again.json").descriptors == again.descriptors


def test_a_file_with_none_is_read_and_a_wrong_one_is_refused() -> None:
    document = json.loads(explain("abc", custom(lambda x: {"letter": list(x)})).to_json())
    del document["checksum"]
    empty = json.dumps(codec.seal({**document, "descriptors": None}))
    assert c2fa.Explanation.from_json(empty).descriptors is None
    for wrong in ({"letter": ["a"]}, "sentences", {"letter": [1, 2, []]}):
        with pytest.raises(ValueError, match="is not an explanation that to_json\\(\\) wrote, or it is damaged"):
            c2fa.Explanation.from_json(json.dumps(codec.seal({**document, "descriptors": wrong})))


def test_a_store_keeps_what_is_known(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    explainer = c2fa.Explainer(lengths, maskers.Text(), budget=12)
    store = explainer.many(REVIEWS, tmp_path / "words", engine="serial", shard_size=2, progress=False, views="none")
    for e, alone, x in zip(store, explainer.many(REVIEWS), REVIEWS, strict=True):
        assert e.descriptors == described(maskers.Text(), x) == dict(alone.descriptors or {})
    assert store.table(["descriptors"])["descriptors"].to_pylist() == ['"words"'] * 3, (
        "all of it follows from the words"
    )

    table = {"letter": ["a", None, f"é{HALF}👍"], "n": [np.nan, None, 0.1]}
    own = c2fa.Explainer(lengths, custom(lambda x: table), budget=12)
    [e] = own.many(["abc"], tmp_path / "own", engine="serial", progress=False)
    assert e.descriptors == {"letter": ["a", None, "é\ufffd👍"], "n": [None, None, 0.1]}


def test_a_table_that_fails_costs_no_explanation(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    explainer = c2fa.Explainer(lengths, custom(lambda x: {"a": [1]} if x == "abd" else {"a": [1, 2, 3]}), budget=12)
    good, bad = explainer.many(["abc", "abd"], tmp_path, engine="serial", progress=False)
    assert good.descriptors == {"a": [1.0, 2.0, 3.0]}
    assert bad.descriptors is None
    assert "the masker's descriptors are left out: ValueError: field 'a'" in bad.diagnostics.warnings[-1]
    assert not any("descriptors" in warning for warning in good.diagnostics.warnings)
