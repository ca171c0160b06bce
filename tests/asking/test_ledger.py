"""The ledger: nothing is paid for twice, nothing is recalled for something else, nothing vanishes in silence."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

import c2fa
from c2fa import _system as owners
from c2fa.asking import ledger as ledgers
from c2fa.asking.driver import Job, drive
from c2fa.asking.fingerprint import fingerprint, identify
from c2fa.asking.masking import Masked
from c2fa.asking.querying import Ask, Cache, Queries

S = c2fa.Structure.from_tree({f"P{j}": [f"{j}.{i}" for i in range(4)] for j in range(5)})
X = np.ones(20)
W = np.linspace(-1, 2, 20)
TEXT = "A good start. A bad middle, and then a good end."


class Model:
    """Remembers every row it was ever asked."""

    def __init__(self, before=lambda rows: None):
        self.rows, self.before = [], before

    def __call__(self, batch):
        self.before(self.rows)
        self.rows += [row if isinstance(row, str) else row.tobytes() for row in batch]
        if isinstance(batch, np.ndarray):
            return np.tanh((batch * W).sum(axis=1) / 5)  # the same for a row in any batch
        return [len(row) + 0.5 * row.count("good") for row in batch]


def explain(model, path, x=X, masker=None, key=None, **options):
    explainer = c2fa.Explainer(
        model, masker or c2fa.maskers.Array(S), **{"ledger": path, "model_name": "m", "batch_size": 16, **options}
    )
    return explainer(x, key=key)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answers.sqlite"


# -- what an answer belongs to


def test_a_key_does_not_hide_the_masker(path):
    first, second = Model(), Model()
    explain(first, path, TEXT, c2fa.maskers.Text(mask="[MASK]"), key="review")
    e = explain(second, path, TEXT, c2fa.maskers.Text(mask=None), key="review")
    assert len(second.rows) == e.diagnostics.sent == e.queries
    plain = explain(Model(), None, TEXT, c2fa.maskers.Text(mask=None), key="review")
    np.testing.assert_array_equal(e.low, plain.low)


def test_an_input_that_was_edited_under_its_old_key_is_asked_anew(path):
    masker, model = c2fa.maskers.Text(), Model()
    explain(Model(), path, TEXT, masker, key="review")
    e = explain(model, path, TEXT.replace("bad", "good"), masker, key="review")
    assert len(model.rows) == e.queries
    again = Model()
    explain(again, path, TEXT, masker, key="review")
    assert not again.rows


def test_keys_of_a_dataset_do_not_hide_the_masker(tmp_path, path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"id": ["one"], "text": [TEXT]})
    found = []
    for number, mask in enumerate(("[MASK]", None)):
        model = Model()
        explainer = c2fa.Explainer(model, c2fa.maskers.Text(mask=mask), ledger=path, model_name="m", budget=30)
        store = explainer.many(table, tmp_path / str(number), column="text", key="id", engine="serial", progress=False)
        found.append(store[0].low)
        assert model.rows
    assert not np.array_equal(*found)


def defined(source):
    """A function of a module, as it is after an edit."""
    space = {"__name__": "mine", "c2fa": c2fa, "np": np, "S": S, "X": X, "Masked": Masked}
    exec(source, space)
    return space["keep"]


def test_an_edited_masker_function_asks_anew(path):
    source = "def keep(x):\n    return Masked(S, lambda masks, level: np.where(S.expand(masks, level), x, 0.0))"
    first, second, third = Model(), Model(), Model()
    explain(first, path, masker=defined(source), key="k")
    explain(second, path, masker=defined(source.replace("0.0", "0.5")), key="k")
    assert len(second.rows) == len(first.rows)
    explain(third, path, masker=defined(source), key="k")
    assert not third.rows


EDITS = [
    ("def keep(x): return x + 1", "def keep(x): return x + 2"),
    ("def keep(x, by=1): return x + by", "def keep(x, by=2): return x + by"),
    ("def keep(x, *, by=1): return x + by", "def keep(x, *, by=2): return x + by"),
    ("def keep(x): return x[..., 0]", "def keep(x): return x[..., 1]"),
    ("def keep(x): return x in {1, 2}", "def keep(x): return x in {1, 3}"),
    (
        "import functools\n@functools.cache\ndef keep(x): return 1",
        "import functools\n@functools.cache\ndef keep(x): return 2",
    ),
]


@pytest.mark.parametrize(("before", "after"), EDITS)
def test_a_function_goes_by_what_it_does(before, after):
    assert fingerprint(defined(before)) == fingerprint(defined(before)) != fingerprint(defined(after))


def test_partial_functions_methods_and_functions_that_hold_themselves_have_fingerprints():
    def count(n):
        return n and count(n - 1)

    @dataclass(frozen=True)
    class Adds:
        by: int

        def add(self, x):
            return x + self.by

    def other_call(self, x):
        return x - self.by

    assert fingerprint(count) == fingerprint(count)
    assert fingerprint(functools.partial(count, 1)) != fingerprint(functools.partial(count, 2))
    assert fingerprint(Adds(1).add) == fingerprint(Adds(1).add) != fingerprint(Adds(2).add)
    before = fingerprint(Adds(1))
    Adds.__call__ = Adds.add
    called = fingerprint(Adds(1))
    Adds.__call__ = FunctionType(other_call.__code__, {}, "add")
    Adds.__call__.__qualname__ = Adds.add.__qualname__
    assert len({before, called, fingerprint(Adds(1))}) == 3


def test_tokenizers_go_by_what_they_do():
    one, other = (defined(f"def keep(text): return [(0, {n})]") for n in (1, 2))
    ids = [c2fa.maskers.Text(tokenizer=tokenizer).tokenizer_id for tokenizer in (one, one, other)]
    assert ids[0] == ids[1] != ids[2]

    class Stranger:
        def __call__(self, text):
            return [(0, 1)]

    assert c2fa.maskers.Text(tokenizer=Stranger()).tokenizer_id != c2fa.maskers.Text(tokenizer=Stranger()).tokenizer_id


def test_a_masker_that_cannot_be_told_from_others_is_refused_before_a_file_is_made(path):
    class Plain:
        def __call__(self, x):
            raise AssertionError

    with pytest.raises(TypeError, match="cannot tell the masker Plain from others; make it a function or a frozen"):
        explain(Model(), path, masker=Plain(), key="k")
    assert not path.exists()


def test_half_of_a_surrogate_pair_is_a_text_too(path):
    text, masker = "half \ud83d emoji. And a good end.", c2fa.maskers.Text()
    again = Model()
    e = explain(Model(), path, text, masker)
    np.testing.assert_array_equal(explain(again, path, text, masker).low, e.low)
    assert not again.rows
    explain(Model(), path, text, masker, key="\ud83d")
    assert fingerprint("\ud83d") != fingerprint("\ud83e") != fingerprint("\\ud83e")
    assert identify("\ud83d").number


# -- several processes


def slowly(rows):
    time.sleep(0.002)


@pytest.mark.parametrize("in_flight", [1, 3])
def test_two_users_of_one_ledger_ask_each_row_once(path, in_flight):
    model, start = Model(slowly), threading.Barrier(2)
    x = np.arange(20.0)

    def run(order):
        ledger = c2fa.Ledger(path)
        cache = Cache(c2fa.maskers.Array(S)(x), "raise", identify(x, None, c2fa.maskers.Array(S)), ledger, "m")
        jobs = [Job(asks(rows), Queries(cache, 99)) for rows in order]
        start.wait()
        for job in drive(jobs, model, batch_size=3, in_flight=in_flight):
            job.result()
        left = marks(ledger)
        ledger.close()
        return [job.result() for job in jobs], left

    # Each begins with the rows that the other comes to last.
    orders = [[range(12), range(8, 20)], [range(8, 20)[::-1], range(12)[::-1]]]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(run, orders, timeout=60))
    assert len(model.rows) == len(set(model.rows)) == 20
    for (answers, _), order in zip(found, orders, strict=True):
        np.testing.assert_allclose(np.concatenate(answers), np.tanh((W * x)[[i for o in order for i in o]] / 5))
    assert min(left for _, left in found) == 0, "the last one leaves no mark"


def asks(*questions):
    """A conversation that asks about rows of leaves and returns all answers."""
    found = []
    for rows in questions:
        answer = yield Ask(1, np.eye(20, dtype=bool)[list(rows)])
        found.append(answer.outputs[:, 0])
    return np.concatenate(found)


def marks(ledger):
    return ledger._db.execute("SELECT COUNT(*) FROM under_way").fetchone()[0]


def asked_elsewhere(path, owner):
    """A ledger in which another process has marked every row of an explanation, and what it will answer."""
    answers = path.with_name("others.sqlite")
    e = explain(Model(), answers)
    theirs, ours = c2fa.Ledger(answers), c2fa.Ledger(path)
    rows = theirs._db.execute("SELECT * FROM answers").fetchall()
    theirs.close()
    ours._owner = owner
    ours.mark([row[:4] for row in rows])
    assert marks(ours) == e.queries
    return ours, rows, e


def test_rows_that_another_process_asks_are_waited_for_and_recalled(path, monkeypatch):
    ours, rows, e = asked_elsewhere(path, "1~elsewhere~boot~3~2~00c0ffee")
    looks = []

    def look(seconds):
        looks.append(seconds)
        half = len(rows) // 2
        batch = rows[:half] if len(looks) == 1 else rows[half:]
        ours.write(batch, [row[:4] for row in batch])

    monkeypatch.setattr("c2fa.asking.driver.time.sleep", look)
    model = Model()
    found = explain(model, path)
    assert not model.rows
    assert found.diagnostics.recalled == e.queries
    assert 1 <= len(looks) <= 3
    np.testing.assert_array_equal(found.low, e.low)
    ours.close()


def test_rows_of_a_process_that_has_ended_are_asked_at_once(path, monkeypatch):
    monkeypatch.setattr("c2fa.asking.driver.time.sleep", lambda seconds: pytest.fail("nobody is asking"))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    ours, _, e = asked_elsewhere(path, f"{process_here(number=ended.pid)}~00c0ffee")
    model = Model()
    explain(model, path)
    assert len(model.rows) == e.queries
    assert marks(ours) == 0
    ours.close()


def process_here(**other):
    """This process as marks have it, but for what is given."""
    names = ("number", "host", "boot", "space", "born")
    known = dict(zip(names, owners.this_process().split("~")[:5], strict=True))
    return "~".join(map(str, (known | other).values()))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not tell when a process began")
@pytest.mark.parametrize("other", [{"born": 17}, {"boot": "earlier"}, {"number": 2**22 + 1}])
def test_a_mark_of_an_earlier_process_with_this_number_is_not_waited_for(path, monkeypatch, other):
    monkeypatch.setattr("c2fa.asking.driver.time.sleep", lambda seconds: pytest.fail("nobody is asking"))
    ours, _, e = asked_elsewhere(path, f"{process_here(**other)}~00c0ffee")
    model = Model()
    explain(model, path)
    assert len(model.rows) == e.queries
    ours.close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not tell of processes")
def test_who_is_gone():
    def born(number):
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19]

    def gone(who, thread=None):
        thread = thread or threading.get_ident()
        files = owners.is_gone(f"_part-00000001-{who}~00c0ffee.tmp")
        marks = ledger._is_gone(f"{who}~00c0ffee~{thread}")
        assert files == marks or thread == 2**60
        return marks

    ledger = c2fa.Ledger(":memory:")
    assert not gone(process_here())
    assert gone(process_here(), thread=2**60), "a thread that has ended"
    assert not gone(process_here(number=1, born=born(1)))
    assert gone(process_here(number=1, born=17)), "an earlier process with this number"
    assert not gone(process_here(space=1, born=17)), "another container has its own numbers"
    assert not gone(process_here(host="elsewhere", boot="x"))
    assert gone(process_here(boot="x")), "the machine was started again"
    assert gone(process_here(number=2**70))
    assert ledger._is_gone("half a mark")
    ledger.close()
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    while not gone(process_here(number=zombie.pid, born=born(zombie.pid))):
        time.sleep(0.01)
    zombie.wait()


def test_marks_of_a_clock_that_was_ahead_are_not_waited_for(path, monkeypatch):
    ours, _, e = asked_elsewhere(path, "1~elsewhere~boot~3~2~00c0ffee")
    ours._db.execute("UPDATE under_way SET expires=expires+86400")
    monkeypatch.setattr("c2fa.asking.driver.time.sleep", lambda seconds: pytest.fail("that mark is not of today"))
    model = Model()
    explain(model, path)
    assert len(model.rows) == e.queries
    ours.close()


@pytest.mark.parametrize("where", ["a file", ":memory:"])
def test_threads_of_one_ledger_ask_each_row_once(path, where):
    model, start = Model(slowly), threading.Barrier(4)
    explainer = c2fa.Explainer(
        model,
        c2fa.maskers.Array(S),
        budget=30,
        batch_size=4,
        ledger=path if where == "a file" else c2fa.Ledger(where),
        model_name="m",
        progress=False,
    )

    def run(_):
        start.wait()
        return explainer(X)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(run, range(4), timeout=60))
    assert len(model.rows) == len(set(model.rows)) == found[0].queries
    assert sum(e.diagnostics.sent for e in found) == found[0].queries
    for e in found[1:]:
        np.testing.assert_array_equal(e.low, found[0].low)
    assert marks(explainer.ledger) == 0


def test_marks_of_another_machine_do_not_last(path, monkeypatch):
    monkeypatch.setattr(ledgers, "_LEASE_SECONDS", 0.2)
    ours, _, e = asked_elsewhere(path, "1~elsewhere~boot~3~2~00c0ffee")
    model = Model()
    explain(model, path)
    assert len(model.rows) == e.queries
    ours.close()


def fails(rows):
    if len(rows) >= 16:
        raise ConnectionError("gone")


def interrupts(rows):
    if len(rows) >= 16:
        raise KeyboardInterrupt


@pytest.mark.parametrize("before", [fails, interrupts])
@pytest.mark.parametrize("in_flight", [1, 3])
def test_no_marks_stay_behind_when_a_run_ends_early(path, before, in_flight):
    ledger = c2fa.Ledger(path)
    cache = Cache(c2fa.maskers.Array(S)(X), "raise", identify(X, None, c2fa.maskers.Array(S)), ledger, "m")
    jobs = [Job(asks(range(20)), Queries(cache, 99))]
    with pytest.raises((c2fa.QueryError, KeyboardInterrupt)):
        [job.result() for job in drive(jobs, Model(before), batch_size=4, in_flight=in_flight)]
    assert marks(ledger) == 0
    ledger.close()


@pytest.mark.parametrize("fails", [False, True])
def test_ctrl_c_keeps_the_answers_of_calls_that_threads_have_under_way(path, fails):
    ledger, both = c2fa.Ledger(path), threading.Barrier(3)

    def answer_late(rows):
        both.wait(10)
        if threading.get_ident() == later[0]:
            time.sleep(0.5)
            if fails:
                raise ValueError("gone")

    def model(batch):
        later.append(threading.get_ident())
        return asked(batch)

    later, asked = [], Model(answer_late)

    def interrupt():
        raise KeyboardInterrupt

    cache = Cache(c2fa.maskers.Array(S)(X), "raise", identify(X, None, None), ledger, "m")
    jobs = [Job(asks(range(10)), Queries(cache, 99))]
    threading.Thread(target=both.wait, args=(10,)).start()
    with pytest.raises(KeyboardInterrupt):
        list(drive(jobs, model, batch_size=4, in_flight=2, tell=interrupt))
    assert len(ledger) == len(asked.rows) == (4 if fails else 8)
    assert marks(ledger) == 0
    ledger.close()


def test_no_marks_stay_behind_for_batches_that_an_interrupt_kept_from_being_sent(path):
    ledger, jobs = c2fa.Ledger(path), []
    for x in (X, X.astype(np.complex64)):  # kinds that cannot share a batch
        masker = c2fa.maskers.Custom(S, lambda x, masks, level: np.where(S.expand(masks, level), x, 0))
        cache = Cache(masker(x), "raise", identify(x, None, masker), ledger, "m")
        jobs.append(Job(asks(range(4)), Queries(cache, 99)))

    def interrupted(batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(drive(jobs, interrupted, batch_size=64))
    assert marks(ledger) == 0
    assert not any(job.queries.cache.under_way for job in jobs)
    ledger.close()


def test_no_marks_stay_behind_where_the_masker_fails(path):
    def broken(x, masks, level):
        if len(masks) > 1:
            raise OSError("no such picture")
        return np.ones((len(masks), 20))

    ledger = c2fa.Ledger(path)
    with pytest.raises(OSError, match="no such picture"):
        explain(Model(), ledger, masker=c2fa.maskers.Custom(S, broken))
    assert marks(ledger) == 0
    ledger.close()


def run_in_a_process(path, start, asked):
    start.wait()
    model = Model(slowly)
    e = explain(model, path, batch_size=4)
    asked.put((model.rows, e.low))


@pytest.mark.slow
def test_two_processes_ask_each_row_once(path):
    context = multiprocessing.get_context("spawn")
    start, asked = context.Barrier(2), context.Queue()
    processes = [context.Process(target=run_in_a_process, args=(path, start, asked)) for _ in range(2)]
    for process in processes:
        process.start()
    (one, low), (other, same) = (asked.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    alone = Model()
    explain(alone, None)
    assert sorted(one + other) == sorted(alone.rows)  # the input and the empty one twice, to see whether it has noise
    np.testing.assert_array_equal(low, same)


# -- damage


def test_a_ledger_that_is_deleted_in_mid_run_is_told(path):
    model = Model(lambda rows: path.unlink(missing_ok=True) if len(rows) > 40 else None)
    e = explain(model, path)
    assert len(set(model.rows)) + 2 == len(model.rows) == e.queries, "two are asked again"
    [told] = [w for w in e.diagnostics.warnings if str(path) in w]
    assert "the file was deleted or replaced while it was in use; answers from here on are not kept" in told
    np.testing.assert_array_equal(e.low, explain(Model(), None).low)


def test_an_error_says_that_the_ledger_is_gone(path):
    def before(rows):
        if len(rows) > 40:
            path.unlink(missing_ok=True)
        if len(rows) > 80:
            raise ConnectionError("gone")

    with pytest.raises(c2fa.QueryError) as caught:
        explain(Model(before), path)
    assert any("deleted or replaced" in note for note in caught.value.__notes__)
    assert not any("give ledger=" in note for note in caught.value.__notes__)


def test_every_later_input_says_that_the_ledger_is_gone(path):
    model = Model(lambda rows: path.unlink(missing_ok=True) if len(rows) > 40 else None)
    explainer = c2fa.Explainer(model, c2fa.maskers.Array(S), ledger=path, model_name="m", budget=40, batch_size=8)
    items = [c2fa.batch.Item(i, np.full(20, float(i))) for i in range(6)]
    told = ["deleted" in str(o.explanation.diagnostics.warnings) for o in c2fa.batch.packed(explainer, items)]
    assert told[-3:] == [True] * 3
    with pytest.raises(c2fa.asking.ledger.LedgerError, match="cannot count the answers"):
        len(explainer.ledger)


def kept(path, sql, *values):
    """What an explanation is after its ledger was damaged, and what the model was asked."""
    e = explain(Model(), path)
    db = sqlite3.connect(path)
    db.execute(sql, values)
    db.commit()
    db.close()
    model = Model()
    return e, explain(model, path), model


def blob(*numbers):
    return np.array(numbers).tobytes()


@pytest.mark.parametrize("output", [b"", b"1234567", blob(0.25), blob(np.nan), "text"])
def test_a_damaged_answer_is_named_and_asked_again(path, output):
    one = "(SELECT mask FROM answers WHERE level=1 LIMIT 1 OFFSET 7)"
    before, after, model = kept(path, f"UPDATE answers SET output=? WHERE mask={one}", output)
    assert len(model.rows) == 1
    np.testing.assert_array_equal(after.low, before.low)
    [told] = [w for w in after.diagnostics.warnings if "damaged" in w]
    assert f"1 answers in {path} are damaged (first: mask " in told
    assert told.endswith("their rows are asked again")
    third = Model()
    assert not any("damaged" in w for w in explain(third, path).diagnostics.warnings)
    assert not third.rows


@pytest.mark.parametrize("output", [b"1234567", blob(np.nan), blob(1e200), blob(1.0, 2.0), b""])
def test_recalled_answers_are_checked_like_answers(path, output):
    explain(Model(), path)
    ledger = c2fa.Ledger(path)
    row = ledger._db.execute("SELECT * FROM answers LIMIT 1 OFFSET 9").fetchone()
    ledger.write([(*row[:4], output, ledgers._checksum(row[:4], output))])
    ledger.close()
    model = Model()
    e = explain(model, path)
    assert len(model.rows) == 1
    assert any("damaged" in w for w in e.diagnostics.warnings)
    np.testing.assert_array_equal(e.low, explain(Model(), None).low)


def test_no_flipped_bit_gives_other_numbers(path, tmp_path):
    truth = explain(Model(), path, budget=20)
    gc.collect()
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    told = 0
    for at in rng.integers(len(whole), size=60):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        copy = tmp_path / f"{at}.sqlite"
        copy.write_bytes(damaged)
        try:
            e = explain(Model(), copy, budget=20)
        except c2fa.asking.ledger.LedgerError:
            told += 1
            continue
        np.testing.assert_array_equal(e.low, truth.low)
        told += any("damaged" in w for w in e.diagnostics.warnings)
    assert told


def test_the_first_text_stays_and_a_damaged_one_is_kept_again_if_it_is_the_same(path):
    ledger = c2fa.Ledger(path)
    assert ledger.keep_text("m", "x", "one") == "one"
    assert ledger.keep_text("m", "x", "two") == ledger.get_text("m", "x") == "one"
    for damage in ("output=x'6f6e66'", "checksum=checksum+1"):
        ledger._db.execute(f"UPDATE answers SET {damage} WHERE level=-1")
        with pytest.raises(ledgers.DamagedTextError, match=r"a text in .* is damaged"):
            ledger.get_text("m", "x")
        with pytest.raises(ledgers.LedgerError, match="another one was written in its place, with which the rows"):
            ledger.keep_text("m", "x", "two")
        assert ledger.keep_text("m", "x", "one") == ledger.get_text("m", "x") == "one"
    ledger.close()


def test_a_model_of_another_width_is_told_to_take_another_name(path):
    explain(Model(), path, budget=20)
    with pytest.raises(c2fa.QueryError, match=r"2 outputs a row and 1 before; .* give it another model_name"):
        explain(lambda batch: np.ones((len(batch), 2)), path, budget=60)


# -- files


def test_an_explainer_closes_its_ledger(path):
    explainer = c2fa.Explainer(Model(), c2fa.maskers.Array(S), ledger=path, model_name="m")
    db = explainer.ledger._db
    del explainer
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        db.execute("SELECT 1")


def test_a_refused_explainer_leaves_no_file(path):
    with pytest.raises(ValueError, match="this model has none"):
        c2fa.Explainer(Model(), c2fa.maskers.Array(S), ledger=path)
    assert not path.exists()


@pytest.mark.parametrize("level", [2**63, np.float16(2.0), np.int64(1)])
def test_a_level_that_sqlite_would_keep_as_something_else(level):
    ledger = c2fa.Ledger(":memory:")
    with pytest.raises(TypeError, match="a level is a whole number, such as 0 for the coarsest"):
        ledger.put("m", "x", level, [b"a"], np.ones((1, 2)))
    ledger.close()


def test_a_ledger_needs_a_file_name():
    with pytest.raises(c2fa.asking.ledger.LedgerError, match=r"name is empty; give one, such as 'answers\.sqlite'"):
        explain(Model(), "")
    with pytest.raises(TypeError, match=r"a ledger must be a file name, .*; got 5"):
        explain(Model(), 5)


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_foreign_database_is_refused_untouched(tmp_path, path, mode):
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA journal_mode={mode}")
    db.execute("CREATE TABLE mine (x)")
    db.commit()
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(c2fa.asking.ledger.LedgerError, match="it is something else; give a new file name"):
        c2fa.Ledger(path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    db.close()


def test_a_folder_is_no_ledger(tmp_path):
    with pytest.raises(c2fa.asking.ledger.LedgerError, match="Is a directory; give a new file name"):
        c2fa.Ledger(tmp_path)
