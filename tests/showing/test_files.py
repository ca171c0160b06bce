"""Files of explanations: what goes in comes out, what is damaged or foreign is refused, nothing is half written."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import os
import stat
import threading
import tracemalloc
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import c2fa
import showcases
from c2fa import views
from c2fa._system import atomic
from c2fa.cli import output
from c2fa.cli.output import RefusedError
from c2fa.showing.codec import check_unpacked

HALF = "half \ud83d emoji. Then a whole 😀 one."
STRUCTURE = c2fa.Structure.from_groups(np.repeat(np.arange(4), 5))


def explain(**options: Any) -> c2fa.Explanation:
    model = lambda b: b @ np.linspace(-1, 1, 60).reshape(20, 3)  # noqa: E731
    masker = c2fa.maskers.Array(STRUCTURE)
    return c2fa.Explainer(model, masker, **{"budget": (8, 30), "progress": False, **options})(np.ones(20))


@functools.cache
def explain_once() -> c2fa.Explanation:
    return explain()


def explain_half(text: str = HALF, **options: Any) -> c2fa.Explanation:
    model = lambda texts: np.array([len(text) for text in texts])  # noqa: E731
    return c2fa.Explainer(model, c2fa.maskers.Text(), budget=(4, 8), progress=False, **options)(text)


def saved(e: c2fa.Explanation, path: Path) -> c2fa.Explanation:
    e.save(path)
    return c2fa.load(path)


def same(one: c2fa.Explanation, other: c2fa.Explanation) -> None:
    """Every number, name and word is the same."""
    assert one.to_json() == other.to_json()


# -- what goes in comes out ----------------------------------------------------------------------------


def test_explanations_survive_files_and_tables(tmp_path):
    e = explain(output_names=("a", "b", "c"), penalty=(c2fa.L2(0.1), c2fa.L2(0.0)), budget=(5, 10))
    assert np.isinf(e.stderr[1]).any()
    for back in (
        c2fa.Explanation.from_json(e.to_json()),
        c2fa.Explanation.from_json(e.to_json(indent=2)),
        *(saved(e, tmp_path / f"e.{ending}") for ending in ("json", "JSON")),
    ):
        for a, b in zip(back.all_values + back.all_stderr, e.all_values + e.all_stderr, strict=True):
            np.testing.assert_array_equal(a, b)
        assert back.names == e.names
        assert back.diagnostics == e.diagnostics
        assert back.target_name == e.target_name
        assert str(back) == str(e)
        np.testing.assert_array_equal(back.view.values, e.view.values)
        same(back, e)
    assert json.loads(e.to_json())["schema"] == 2
    for name in ("e.pickle", "e.npz"):
        with pytest.raises(ValueError, match=rf"kept in a file that ends in \.json, not '{name}'"):
            e.save(tmp_path / name)
        with pytest.raises(ValueError, match=r"kept in a file that ends in \.json"):
            c2fa.load(tmp_path / name)


def test_large_arrays_travel_packed():
    image = np.random.default_rng(0).integers(0, 256, (300, 300, 3)).astype(np.uint8)
    view = views.Images((image,), (np.arange(20, dtype=np.int32).reshape(4, 5),))
    text = dataclasses.replace(explain(), view=view).to_json()
    assert len(text) < 1.5 * image.size
    np.testing.assert_array_equal(c2fa.Explanation.from_json(text).view.images[0], image)
    labels = np.repeat(np.arange(20, dtype=np.int32), 300_000).reshape(2000, 3000)
    flat = dataclasses.replace(explain(), view=views.Images((image[:9, :9],), (labels,)))
    assert len(flat.to_json()) < 100_000, "label maps are packed"


def test_half_a_surrogate_pair_comes_back(tmp_path):
    e = explain_half(output_names=("\ud83d",))
    back = saved(e, tmp_path / "e.json")
    assert back.view.text == HALF
    assert back.names == e.names
    assert back.output_names == ("\ud83d",)


@given(st.text(st.sampled_from('a\\"u\ud83d\ude00\udfff😀\n'), max_size=12))
def test_texts_of_any_halves_come_back(text):
    view = views.Table((text, (text,), *range(18)), levels=(text, "leaves"))
    e = dataclasses.replace(explain_once(), view=view)
    back = c2fa.Explanation.from_json(e.to_json().encode().decode())
    assert back.view.values == (text, [text], *range(18))
    assert back.view.levels == (text, "leaves")


def test_half_a_surrogate_pair_can_be_shown_everywhere(tmp_path):
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    e = explain_half(output_names=("class \ud83d",))
    for text in (str(e), e.to_html(), e._repr_html_(), e.to_json(), e.to_frame().to_csv()):
        text.encode()
    assert "half � emoji" in e.to_text()
    assert "class �: " in e.to_text()
    assert "�" in set(e.to_frame()["name"])
    for kind in ("text", "nested"):
        for format in ("png", "svg", "pdf"):
            e.plot(kind).savefig(io.BytesIO(), format=format)


def test_a_dataset_with_half_a_surrogate_pair_is_finished_and_finished_again(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"id": t, "text": t}) + "\n" for t in ("fine.", HALF)))
    model = lambda texts: np.array([len(text) for text in texts])  # noqa: E731
    made = c2fa.Explainer(model, c2fa.maskers.Text(), budget=(4, 8), output_names=("\ud83d",), progress=False)
    for _ in range(2):
        store = made.many(tmp_path / "in.jsonl", tmp_path / "s", column="text", key="id", engine="serial")
        assert len(list(store)) == 2
    assert store[1].view.text == HALF
    assert store[1].target_name == "�"
    assert store.to_frame()["key"][1] == HALF.replace("\ud83d", "�")


def test_texts_with_half_a_surrogate_pair_are_told_apart():
    from c2fa.asking.fingerprint import identify

    assert len({identify(text).number for text in ("a \ud83d", "a \ud83e", "a ?")} - {0}) == 3


def test_cells_of_every_kind_come_back_as_their_text(tmp_path):
    pd = pytest.importorskip("pandas")
    cells = {
        "day": pd.Timestamp("2024-02-29 12:00", tz="UTC"),
        "date": date(2024, 2, 29),
        "wait": pd.Timedelta("3h"),
        "delta": timedelta(hours=3),
        "month": pd.Period("2024-02"),
        "when": np.datetime64("2024-02-29T00:00:00.000000001"),
        "span": np.timedelta64(5, "s"),
        "price": Decimal("1.10"),
        "raw": b"\x00\xff",
        "none": None,
        "NA": pd.NA,
        "NaT": pd.NaT,
        "nan": float("nan"),
        "interval": pd.Interval(0, 1),
        "complex": 1 + 2j,
        "long": np.longdouble("0.5"),
        "half": np.float16(0.5),
        "count": np.uint8(7),
        "yes": np.bool_(True),
    }
    e = dataclasses.replace(explain_once(), view=views.Table((*cells.values(), "one more")))
    back = saved(e, tmp_path / "e.json")
    from c2fa.showing.printing import cell

    assert list(map(cell, back.view.values)) == list(map(cell, e.view.values))
    saved(back, tmp_path / "again.json")


@pytest.mark.parametrize(
    "array",
    [
        np.array([["a", None], [Decimal("1.5"), 2]], dtype=object),
        np.array(["2024-02-29"], dtype="datetime64[D]"),
        np.array([1 + 2j]),
        np.array(["half \ud83d", ""]),
        np.array(["half \ud83d\ude00"]),
        np.array([0.1, -0.0, np.nan, np.inf], dtype=np.float32),
        np.array([0.1], dtype=np.longdouble),
        np.array([b"a"]),
        np.zeros((0, 3)),
        np.array(3.5),
    ],
    ids=lambda array: array.dtype.str,
)
def test_arrays_of_every_kind_come_back(tmp_path, array):
    view = views.Table((array, *range(19)))
    back = saved(dataclasses.replace(explain_once(), view=view), tmp_path / "e.json").view.values[0]
    assert back.shape == array.shape
    assert list(map(str, back.ravel().tolist())) == list(map(str, array.ravel().tolist()))
    assert back.dtype == array.dtype


# -- what is damaged or a stranger's is refused --------------------------------------------------------


BROKEN: dict[str, bytes] = {
    "empty.json": b"",
    "words.json": b"hello",
    "binary.json": bytes(range(256)),
    "latin.json": "{'é': 1}".encode("latin-1"),
    "deep.json": b"[" * 100_000,
    "deep-object.json": b'{"schema": 2, "a":' * 20_000,
    "list.json": b"[[]]",
    "text.json": b'"hello"',
    "digits.json": b'{"schema": ' + b"1" * 5000 + b"}",
    "foreign.json": b'{"schema": 2}',
    "older.json": b'{"schema": 1}',
    "other-version.json": b'{"schema": 7}',
}


@pytest.mark.parametrize("name", BROKEN)
def test_files_that_are_no_explanations_are_refused(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(BROKEN[name])
    with pytest.raises(ValueError, match="is not an explanation that") as refused:
        c2fa.load(path)
    assert type(refused.value) is ValueError
    assert str(path) in str(refused.value)
    assert "take a copy of it, or explain the input again" in str(refused.value)


def test_texts_that_are_no_explanations_are_refused():
    with pytest.raises(ValueError, match="schema version 2; it says 7"):
        c2fa.Explanation.from_json('{"schema": 7}')
    with pytest.raises(ValueError, match=r"this text is not an explanation that to_json\(\) wrote"):
        c2fa.Explanation.from_json("hello")
    with pytest.raises(FileNotFoundError):
        c2fa.load("there is no such file.json")


def test_a_file_of_several_explanations_is_read_as_such(tmp_path):
    from c2fa.explanation import load_all

    (tmp_path / "e.json").write_text(f"[{explain_once().to_json()}, {explain_once().to_json()}]")
    for e in load_all(tmp_path / "e.json"):
        same(e, explain_once())
    with pytest.raises(ValueError, match="holds 2 explanations"):
        c2fa.load(tmp_path / "e.json")


def test_an_explanation_of_a_later_version_says_so(tmp_path):
    plain = json.loads(explain_once().to_json())
    (tmp_path / "e.json").write_text(json.dumps({**plain, "schema": 3}))
    with pytest.raises(ValueError, match="this c2fa reads schema version 2; it says 3"):
        c2fa.load(tmp_path / "e.json")


ANSWER = {
    "query": "?",
    "text": "So. And so.",
    "statements": ["So.", "And so."],
    "written_by_the_model": True,
    "generations": 1,
    "scored_by": "log-probability",
    "without_documents": [-1.0],
    "documents": [],
    "stays": [],
    "verified": [],
}
PRIOR = {"share": 1.0, "part": 1.0, "worth": 1.0, "without": None, "scouted": 0, "scout_cost": None}
FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "lacks target": lambda d: d.pop("target"),
    "all_values has shapes": lambda d: d["all_values"].pop(),
    "all_stderr has shapes": lambda d: d["all_stderr"].reverse(),
    "all_intercepts has shapes": lambda d: d["all_intercepts"].append(d["outputs"]),
    "outputs has shapes": lambda d: d["output_names"].pop(),
    "target 7 and columns": lambda d: d.update(target=7),
    "target 5 and columns": lambda d: d.update(target=5, columns=[5, 1, 2]),
    "outputs must be numbers": lambda d: d.update(
        outputs={"__array__": [*"abc"], "dtype": "<U500000000", "shape": [3]}
    ),
    "queries cannot be 'many'": lambda d: d.update(queries="many"),
    "view cannot be 3": lambda d: d.update(view=3),
    r"all_values\[0\] cannot be": lambda d: d["all_values"].__setitem__(0, [1, 2]),
    r"structure.names\[0\]\[0\] cannot be 4": lambda d: d["structure"]["names"][0].__setitem__(0, 4),
    r"diagnostics.levels\[0\].r2 cannot be 'good'": lambda d: d["diagnostics"]["levels"][0].update(r2="good"),
    "diagnostics of 1": lambda d: d["diagnostics"]["levels"].pop(),
    "parents of level 1 must lie in 0..3": lambda d: d["structure"]["parents"][0]["__array__"].__setitem__(0, 9),
    "link": lambda d: d["provenance"].update(link="cubic"),
    "it has the unknown colour": lambda d: d.update(colour="red"),
    "it lacks diagnostics.stop": lambda d: d["diagnostics"].pop("stop"),
    "it lacks view.values": lambda d: d["view"].pop("values"),
    "shows its input by 'Hologram', a class that is not known here": lambda d: d["view"].update({"class": "Hologram"}),
    "the view has 19 values, and there are 20 leaves": lambda d: d["view"]["values"].pop(),
    "provenance cannot be 3": lambda d: d.update(provenance=3),
    "prior.share cannot be 'all'": lambda d: d.update(prior={**PRIOR, "share": "all"}),
    "prior.without has shapes": lambda d: d.update(prior={**PRIOR, "without": d["all_values"][:1]}),
    "an answer of 2 statements": lambda d: d.update(answer=ANSWER),
}


@pytest.mark.parametrize("said", FORGED)
def test_fields_that_do_not_fit_together_are_refused(said):
    from c2fa.showing.codec import seal

    document = json.loads(explain_once().to_json())
    document.pop("checksum", None)
    FORGED[said](document)
    with pytest.raises(ValueError, match=said):
        c2fa.Explanation.from_json(json.dumps(seal(document)))


def test_a_flipped_bit_never_gives_other_numbers(tmp_path):
    e, path = explain_once(), tmp_path / "e.json"
    e.save(path)
    data = path.read_bytes()
    refused = 0
    for bit in range(0, 8 * len(data), 37):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            same(c2fa.load(path), e)
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017
            refused += 1
    assert refused > len(data) * 8 // 37 // 2


def test_a_file_that_was_cut_off_is_refused(tmp_path):
    path = tmp_path / "e.json"
    explain_once().save(path)
    data = path.read_bytes()
    for size in range(0, len(data) - 1, len(data) // 40):
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match="is not an explanation that"):
            c2fa.load(path)


def test_what_unpacks_to_hundreds_of_times_its_size_is_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "e.json"
    view = views.Table((np.zeros(2**25, dtype=np.uint8), *range(19)))
    dataclasses.replace(explain_once(), view=view).save(path)
    c2fa.load(path)
    monkeypatch.setattr("c2fa.showing.codec.check_unpacked", functools.partial(check_unpacked, most=2**20))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="it would unpack to 33,5"):
            c2fa.load(path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


# -- nothing is half written ---------------------------------------------------------------------------


def full(handle: int) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("ending", ["json", "html"])
def test_a_full_disk_leaves_the_older_file(tmp_path, monkeypatch, ending):
    path = tmp_path / f"e.{ending}"
    path.write_bytes(b"older")
    monkeypatch.setattr("os.fsync", full)
    e = explain_once()
    with pytest.raises(OSError, match=r"No space left on device; nothing was written.*as it was") as failed:
        e.to_html(path) if ending == "html" else e.save(path)
    assert failed.value.filename == str(path)
    assert path.read_bytes() == b"older"
    assert os.listdir(tmp_path) == [path.name]


def test_what_cannot_be_encoded_leaves_the_older_file(tmp_path):
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError("no words")

    path = tmp_path / "e.json"
    path.write_bytes(b"older")
    with pytest.raises(RuntimeError, match="no words"):
        dataclasses.replace(explain_once(), view={"x": Mute()}).save(path)
    assert path.read_bytes() == b"older"
    assert os.listdir(tmp_path) == [path.name]


def test_every_command_that_writes_leaves_the_older_file(tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    e = explain_once()
    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", full)
        for ending in ("html", "json", "parquet", "csv"):
            path = tmp_path / f"e.{ending}"
            path.write_bytes(b"older")
            with pytest.raises(output.RefusedError, match=r"cannot write .* nothing was written"):
                output.write_explanations(path, [("one", e)])
            assert path.read_bytes() == b"older"
        with pytest.raises(output.RefusedError, match="cannot write"):
            output.write_figure(tmp_path / "e.png", e.plot(), dpi=50)
    assert len(os.listdir(tmp_path)) == 4
    for ending, begin in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        output.write_figure(tmp_path / f"e.{ending}", e.plot(), dpi=50)
        assert (tmp_path / f"e.{ending}").read_bytes().startswith(begin)


def test_names_of_files_that_are_no_text_can_be_written(tmp_path):
    pd = pytest.importorskip("pandas")
    name = os.fsdecode(b"caf\xe9.txt")
    for ending in ("html", "json", "parquet", "csv"):
        output.write_explanations(tmp_path / f"e.{ending}", [(name, explain_half()), (name, explain_half())])
    assert set(pd.read_csv(tmp_path / "e.csv")["input"]) == {"caf�.txt"}


def test_an_error_leaves_nothing_behind(tmp_path):
    with pytest.raises(ZeroDivisionError), atomic(tmp_path / "f") as file:
        file.write(b"half" * (1 // 0))
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name == "nt", reason="links and permissions are another matter there")
def test_links_and_permissions_stay(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"older")
    real.chmod(0o640)
    link.symlink_to(real)
    with atomic(link) as file:
        file.write(b"newer")
    assert link.is_symlink()
    assert real.read_bytes() == b"newer"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    (tmp_path / "plain").write_bytes(b"")
    with atomic(tmp_path / "new") as file:
        file.write(b"newer")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
@pytest.mark.skipif(os.name == "nt", reason="permissions are others there")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o604])
def test_what_was_private_is_at_no_time_readable_by_others(tmp_path, mode):
    file = tmp_path / "e.json"
    file.write_text("old")
    file.chmod(mode)
    with atomic(file) as half:
        half.write(b"new")
        half.flush()
        [new] = [f for f in tmp_path.iterdir() if f != file]
        assert new.stat().st_mode & 0o077 == 0
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == mode


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_links_in_a_circle_are_one_sentence(tmp_path):
    (tmp_path / "a.json").symlink_to(tmp_path / "b.json")
    (tmp_path / "b.json").symlink_to(tmp_path / "a.json")
    with pytest.raises(OSError, match="Too many levels of symbolic links; nothing was written") as caught:
        explain_once().save(tmp_path / "a.json")
    assert caught.value.filename == str(tmp_path / "a.json")
    assert (tmp_path / "a.json").is_symlink()
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(RefusedError, match=r"cannot write '.*a.json': Too many levels of symbolic links"):
        output.check(tmp_path / "a.json", (".json",))


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    with atomic(tmp_path / "pipe") as file:
        file.write(b"said")
    reader.join(10)
    assert read == [b"said"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_what_is_not_to_be_written_is_refused_by_its_own_name(tmp_path):
    with pytest.raises(IsADirectoryError), atomic(tmp_path):
        pass
    with pytest.raises(FileNotFoundError, match="nowhere") as missing, atomic(tmp_path / "nowhere" / "f"):
        pass
    assert missing.value.filename == str(tmp_path / "nowhere" / "f")
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(NotADirectoryError), atomic(tmp_path / "f" / "g"):
        pass
    long = tmp_path / ("é" * 120 + ".json")
    with atomic(long) as file:
        file.write(b"x")
    assert long.read_bytes() == b"x"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is protected from root")
def test_a_file_that_is_write_protected_is_not_replaced(tmp_path):
    (tmp_path / "f").write_bytes(b"older")
    (tmp_path / "f").chmod(0o444)
    with pytest.raises(PermissionError), atomic(tmp_path / "f") as file:
        file.write(b"newer")
    assert (tmp_path / "f").read_bytes() == b"older"


def test_what_contradicts_itself_is_still_said_when_it_is_read_back(tmp_path):
    e = showcases.explain_contradiction()
    assert e.diagnostics.contradiction
    e.save(tmp_path / "e.json")
    assert c2fa.load(tmp_path / "e.json").diagnostics == e.diagnostics
