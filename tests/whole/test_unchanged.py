"""The comparison of everything before and after: it finds no difference where there is none, and one where there is."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import c2fa

pytest.importorskip("experiments", reason="the experiments are in a clone, not in a source distribution")
from benchmarks import unchanged, unchanged_cases

FEW = (
    "array/c2fa/budget=60",
    "array-deep/lime/budget=60",
    "text/c2fa/budget=(21,40)",
    "bag/milli/budget=(41,30)",
    "array/c2fa/L1/admm/budget=60",
    "array/c2fa/no-such-option/budget=60",
    "solve/two/L2/direct/weights=zero",
    "metrics/functions",
)


@pytest.fixture(scope="module")
def records() -> dict[str, unchanged.Record]:
    pytest.importorskip("pandas")  # a record holds the table of each explanation
    return unchanged.run(FEW)


def changed(records: dict[str, unchanged.Record], name: str, path: str, value: Any) -> unchanged.Difference:
    """How a case differs once one of its fields does."""
    new = copy.deepcopy(records[name])
    new[path] = value
    return unchanged.difference(records[name], new)


def moved(field: dict[str, Any], by: float) -> dict[str, Any]:
    return {**field, "numbers": [field["numbers"][0] + by, *field["numbers"][1:]]}


def test_the_same_code_gives_the_same_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "stored.xz"
    assert unchanged.main(["store", str(file), "--only", "bag/*/budget=60"]) == 0
    assert unchanged.main(["compare", str(file), "--only", "bag/*"]) == 0
    assert "differ" in capsys.readouterr().out


def test_a_method_that_answers_otherwise_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    file, name = tmp_path / "stored.xz", "array/c2fa/L2/auto/budget=60"
    unchanged.main(["store", str(file), "--only", name])
    monkeypatch.setitem(unchanged_cases.PENALTIES, "L2", c2fa.L2(0.1 + 1e-6))
    assert unchanged.main(["compare", str(file), "--only", name]) == 1


def test_records_survive_the_file(records: dict[str, unchanged.Record], tmp_path: Path) -> None:
    unchanged.write(tmp_path / "r.xz", records)
    read = unchanged.read(tmp_path / "r.xz")
    assert list(read) == list(FEW)
    assert not any(unchanged.difference(records[name], read[name]).numbers for name in FEW)
    assert all(unchanged.difference(records[name], read[name]).largest == 0 for name in FEW)


@pytest.mark.parametrize("path", ["values/1", "stderr/0", "intercepts", "frame/value", "json/all_stderr/1", "queries"])
def test_a_changed_number_is_noticed(records: dict[str, unchanged.Record], path: str) -> None:
    name = "array/c2fa/budget=60"
    field = records[name][path]
    largest = max(map(abs, field["numbers"]))
    assert changed(records, name, path, moved(field, 1e-8 * largest)).numbers
    assert not changed(records, name, path, moved(field, 1e-10 * largest)).numbers
    assert changed(records, name, path, moved(field, float("nan"))).numbers


def test_a_lost_number_is_noticed(records: dict[str, unchanged.Record]) -> None:
    name = "solve/two/L2/direct/weights=zero"
    new = {path: value for path, value in records[name].items() if path != "stderr/0"}
    assert unchanged.difference(records[name], new).numbers


def test_words_and_names_of_fields_may_change(records: dict[str, unchanged.Record]) -> None:
    name = "array/c2fa/budget=60"
    old = records[name]
    reworded = changed(records, name, "text", old["text"].replace("rows", "lines"))
    assert reworded.words
    assert not reworded.numbers
    other = {path.replace("diagnostics/consistency", "diagnostics/gap"): value for path, value in old.items()}
    renamed = unchanged.difference(old, other)
    assert not renamed.numbers
    assert any("diagnostics/gap" in said for said in renamed.words)


def test_a_number_in_a_text_may_not(records: dict[str, unchanged.Record]) -> None:
    assert unchanged.difference({"text": "R² 0.74 of 3 rows"}, {"text": "an R² of 0.78 from 3 rows"}).numbers
    assert unchanged.difference({"text": "R² 0.74 of 3 rows"}, {"text": "R² 0.74 of 4 rows"}).numbers
    assert not unchanged.difference({"text": "R² 0.74 at level 0"}, {"text": "R² 0.74 of sentences"}).numbers


def test_what_no_longer_exists_is_gone_and_what_fails_is_not(records: dict[str, unchanged.Record]) -> None:
    answered, refused = records["array/c2fa/budget=60"], records["array/c2fa/no-such-option/budget=60"]
    assert "nothing" in unchanged.difference(answered, refused).gone
    failed = {**refused, "error/refused": "False"}
    assert unchanged.difference(answered, failed).numbers
    assert unchanged.difference(refused, answered).numbers
    other_words = unchanged.difference(refused, {**refused, "error/message": "no"})
    assert other_words.words
    assert not other_words.numbers


def test_every_case_has_a_name_of_its_own() -> None:
    assert len(unchanged_cases.cases()) > 300
    assert {case.name for room in unchanged_cases.ROOMS for case in room()} >= unchanged_cases.SENSITIVE
