"""The few lines that join the stages: an input in, an Explanation out."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from c2fa._system import at_least, check_word
from c2fa._version import __version__
from c2fa.asking.driver import Job, drive
from c2fa.asking.fingerprint import check_masker, identify
from c2fa.asking.ledger import Ledger
from c2fa.asking.links import ensure, on_scale
from c2fa.asking.masking import Masked, Masker, Moving, check_masked, check_takes_one
from c2fa.asking.model import Model, Shell, Target, describe, names_of, resolve_target
from c2fa.asking.querying import Ask, Cache, Conversation, OnError, Queries, relayed
from c2fa.asking.replies import QueryError
from c2fa.asking.spending import Purse
from c2fa.diagnosing import diagnose
from c2fa.explanation import Explanation
from c2fa.maskers import Array, Bag, Custom, Default, ImageBag, Tabular, Text, TimeSeries
from c2fa.methods import Attribution, BaseMethod, Task, make, options_of
from c2fa.methods.budget import masks_of, rows_and_money
from c2fa.methods.c2fa import PAPER
from c2fa.models.loading import is_made, wrap
from c2fa.priors import Prior, Scout
from c2fa.showing.progress import Bar
from c2fa.solvers.expected import Expectation, expected_part
from c2fa.stopping import Judge, Rule, Stderr, Top, as_rule, in_stages, stages, until_priced
from c2fa.structure import IntArray
from c2fa.views.descriptors import Descriptors, FromPrior

if TYPE_CHECKING:
    from c2fa.batch import Explanations, Store


class Explainer:
    """Explains a model's predictions on nested inputs.

    Parameters
    ----------
    model
        Any callable from a batch of inputs to outputs, ``(n,)`` or ``(n, outputs)``; a scikit-learn estimator, a torch
        module, a Hugging Face pipeline or an ONNX session is taken as it is (see ``c2fa.models``).
    masker
        What turns an input into masked inputs: ``c2fa.maskers.Text()``, ``Array``, ``Custom``, …; None, the default,
        takes what fits the kind of the input: a text, an image or a row of a table (``c2fa.maskers.Default``).
    method
        ``"owen"``, the default, whose values and base add up to the prediction; ``"shapley"``, the same without parts;
        ``"c2fa"``, the paper's joint fit, also where a preset or an option of its alone is given (``penalty``, …);
        another method's name, or a method object.
    budget
        Model rows, every one of them counted, never exceeded: a number, which the method splits over the levels, or the
        rows of each level, coarse to fine (the prediction is one of the first level's); 200 by default. ``"$2.00"`` or
        ``"2 credits"`` is money for each input, in the unit of the model's ``cost``: it buys 10,000 rows at most.
    target
        The output to explain: an index, a name, or None for the predicted class.
    seed
        The same seed gives the same input the same masks, in every process and whatever is explained beside it. Other
        inputs get masks of their own: they are told apart by a hash of their contents, or by their key.
    until
        A rule by which to stop before the budget is spent: ``c2fa.until.top(3)``, short ``"top3"``, once the three most
        important leaves are settled, or ``c2fa.until.stderr(0.01)``, short ``"stderr:0.01"``.
    link
        The scale that attributions add up on: ``"identity"`` is the model's own output, ``"logit"`` the log-odds of a
        probability (also of a model that says by ``log_probabilities`` that it returns its logarithm), ``"log"`` the
        logarithm. A probability is held 1e-7 off 0 and 1, an output under ``"log"`` at 1e-7 of that for the input
        itself. A ledger keeps the model's own answers, so that another link asks nothing again.
    batch_size
        Rows sent to the model at a time; by default 64, or what a model behind HTTP says keeps its connections busy.
    on_error
        ``"raise"``, or ``"drop"`` to leave out rows whose answer is unusable.
    ledger
        A file (or a ``Ledger``) that keeps every answer; a second run repeats none of them, nor does another process
        at the same time. It needs a name of the model: its ``name`` attribute or ``model_name``.
    output_names
        Names of the outputs; by default the model's ``output_names``, else numbers.
    outputs
        ``"all"`` keeps attributions for every output, ``"target"`` only for the target; ``"auto"`` keeps all up to 32.
    progress
        Whether work of over a second shows a progress bar; None, the default, shows one in notebooks and terminals.
    preset
        ``"paper"`` for what the paper does to the letter, as far as the method has the options; single ones may still
        be given. Masks are the paper's too: an image is removed from a bag only where it is masked as a whole.
    prior
        What other inputs taught, ``c2fa.Prior.learn(explanations)`` or its file, or a cheap model that is asked about
        the same input first, ``c2fa.scout(model)``. It counts as far as this input's answers bear it out.
    options
        The method's own options: ``kernel``, ``sampler``, ``penalty``, ``intercept``, ``solver``, …

    Examples
    --------
    >>> import numpy as np, c2fa
    >>> s = c2fa.Structure.from_groups(["a", "a", "b"])
    >>> model = lambda batch: batch @ np.array([1.0, 2.0, 4.0])
    >>> e = c2fa.Explainer(model, c2fa.maskers.Array(s), budget=30)(np.ones(3))
    >>> e.base, e.high.round(3), e.low.round(3)
    (0.0, array([3., 4.]), array([1., 2., 4.]))
    """

    def __init__(
        self,
        model: Any,
        masker: Masker | None = None,
        *,
        method: str | BaseMethod | None = None,
        budget: int | Sequence[int] | str | None = None,
        target: int | str | None = None,
        seed: int = 0,
        until: str | Rule | None = None,
        link: str = "identity",
        batch_size: int | None = None,
        on_error: OnError = "raise",
        ledger: str | PathLike[str] | Ledger | None = None,
        model_name: str | None = None,
        output_names: Sequence[str] | None = None,
        outputs: Literal["auto", "all", "target"] = "auto",
        progress: bool | None = None,
        preset: str | None = None,
        prior: Prior | Scout | str | PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(model, Array | Bag | Custom | Default | ImageBag | Tabular | Text | TimeSeries):
            raise TypeError(f"the model comes first and the masker second: Explainer(model, {type(model).__name__}(…))")
        model = wrap(model)
        masker = Default() if masker is None else masker
        check_takes_one(
            "masker", masker, "c2fa.maskers.Text()", "the input; c2fa.maskers.Custom takes one of (x, masks, level)"
        )
        if method is None:
            of_the_fit = set(options_of("c2fa")) - set(options_of("owen"))
            method = "c2fa" if preset is not None or of_the_fit & set(options) else "owen"
        if preset is not None:
            check_word("preset", preset, ["paper"])
            options = {**{k: v for k, v in PAPER.items() if k in options_of(method)}, **options}
        check_word("on_error", on_error, ("raise", "drop"))
        check_word("outputs", outputs, ("auto", "all", "target"))
        if batch_size is None:
            batch_size = describe(model).batch_size or 64
        self.batch_size, self.seed = at_least("batch_size", batch_size, 1), at_least("seed", seed, 0)
        self.model: Model = model
        self.masker, self.preset = masker, preset
        self.method = make(method, options, also=Explainer.__init__.__kwdefaults__ or ())
        self.method_name = method if isinstance(method, str) else type(method).__name__
        self.budget, self.money = rows_and_money(budget)
        self._with()
        self.until = None if until is None else as_rule(until)
        self.link = ensure(link, log_probabilities=str(link) == "logit" and describe(model).log_probabilities)
        self.prior = prior if isinstance(prior, Prior | Scout | None) else Prior.load(prior)
        if self.prior is not None:
            self.check_prior(self.prior)
        if self.until is not None and not self.method.can_stop_early:
            raise ValueError(
                f"method {self.method_name!r} asks other rows when it has more of them, so until={until!r} cannot stop "
                "it early; use another method, or until=None"
            )
        self.target: Target = target
        self.on_error, self.outputs, self.progress = on_error, outputs, progress
        if isinstance(output_names, str) or not isinstance(output_names, Iterable | None):
            raise TypeError(f"output_names must be a list of names, one for each output; got {output_names!r}")
        if not isinstance(model_name, str | None):
            raise TypeError(f"model_name must be a text, which changes whenever the model does; got {model_name!r}")
        self.output_names = None if output_names is None else tuple(map(str, output_names))
        names = self.output_names or (describe(model).output_names if is_made(model) else ())
        if names:  # else the model is asked for them, with each input's first row
            resolve_target(target, np.zeros(len(names)), names)
        # A model's own name may be a hash of its weights, so it is asked for only where it is needed.
        self.model_name = model_name or (None if ledger is None else describe(model).name)
        if ledger is not None:
            if not self.model_name:
                raise ValueError(
                    "a ledger keeps answers under the model's name, and this model has none; give model_name='…' and "
                    "change it whenever the model changes"
                )
            check_masker(masker)
        # Last, so that an explainer that is refused leaves no file behind.
        self.ledger = ledger if ledger is None or isinstance(ledger, Ledger) else Ledger(ledger)

    def check_prior(self, prior: Prior | Scout | None) -> None:
        """Refuse a prior that cannot be used; None asks whether one that is still to be learned can be."""
        if prior is not None:
            prior.check(self)
        elif isinstance(self.prior, Scout):
            raise ValueError("learn= puts what inputs teach in the place of prior=c2fa.scout(…); leave out either")
        if not self.method.uses_prior:
            raise ValueError(
                f"method {self.method_name!r} with {self.method} cannot use a prior; use method='c2fa' with "
                "penalty='auto', or leave prior= out"
            )

    def __call__(self, x: Any, *, key: str | None = None) -> Explanation:
        """Explain one input. ``key`` names it, in the ledger and for its masks where it cannot be hashed."""
        if not isinstance(key, str | None):
            raise TypeError(f"key must be a text that names the input, and no other; got {key!r}")
        if isinstance(x, list) and isinstance(self.masker, Text):
            raise TypeError(
                f"explainer(x) explains one text, and this is a list of {len(x)}: explainer.many(texts) explains each; "
                "several that the model reads together are a tuple or a dict"
            )
        masked = self.under(self.masker(x))
        queries = self.queries(x, masked, key)
        job = Job(self.conversation(masked, queries), queries)
        with contextlib.closing(Bar(self.progress, queries.budget, "row", "asking the model", leave=False)) as bar:

            def tell() -> None:
                cost = describe(self.model).cost
                beside = f"cost {cost:.4g}" if cost else ""
                bar.update(queries.used, beside, "fitting" if queries.used == queries.budget else "asking the model")

            [job] = drive([job], self.model, batch_size=self.batch_size, tell=tell)
        return job.result()

    def live(self, x: Any, *, key: str | None = None) -> Any:
        """Explain one input on a page in the notebook that answers back: switch features off, spend more rows."""
        from c2fa.report.live import Live

        return Live(self, x, key)

    @overload
    def many(self, inputs: Any, store: None = None, **options: Any) -> Explanations: ...
    @overload
    def many(self, inputs: Any, store: str | PathLike[str], **options: Any) -> Store: ...
    def many(self, inputs: Any, store: str | PathLike[str] | None = None, **options: Any) -> Explanations | Store:
        """Explain every input of a list, of a DataFrame (its rows), of a Parquet or JSONL file, …

        Without a store the explanations are returned, in order; the place of an input that failed raises when it is
        looked at (see ``c2fa.batch.in_memory``). With one they go to a folder of Parquet shards, and the same call
        continues a run that was stopped (see ``c2fa.batch.many``).
        """
        from c2fa.batch.many import many
        from c2fa.batch.memory import in_memory

        if store is None:
            return in_memory(self, inputs, **options)
        return many(self, inputs, store, **options)

    def with_model(self, model: Any) -> Explainer:
        """The same explainer around another model, or around another one inside a shell."""
        return self._with(model=self.model.around(model) if isinstance(self.model, Shell) else model)

    def with_prior(self, prior: Prior | Scout | None, budget: int | Sequence[int] | str | None = None) -> Explainer:
        """The same explainer with what other inputs taught, and another budget where one is given."""
        self.check_prior(prior)
        rows, money = (self.budget, self.money) if budget is None else rows_and_money(budget)
        return self._with(prior=prior, budget=rows, money=money)

    def _with(self, **parts: Any) -> Explainer:
        """The same explainer with other parts; one that is to be paid in money needs a model that counts its cost."""
        made = copy.copy(self)
        vars(made).update(parts)
        if made.money is not None and is_made(made.model):  # else it is looked at where it is made
            made.money.check(made.model)
        return made

    def under(self, masked: Masked) -> Masked:
        """An input that is ready to be masked, under the masks of the preset."""
        check_masked(masked)
        return masked.apart() if self.preset == "paper" and masked.apart is not None else masked

    def rows(self, masked: Masked, purse: Purse | None = None) -> tuple[int, ...]:
        """The masks of each level for an input, after the one for its prediction and those beside it."""
        depth, each = masked.structure.depth, masked.rows_per_mask
        beside = len(masked.beside) + (0 if self.prior is None else self.prior.own_rows)
        budget = self.budget if self.money is None else self.money.rows(purse or Purse(), each, depth + 1 + beside)
        return self.method.split(masks_of(budget, each, depth, beside), masked.structure)

    def queries(self, x: Any, masked: Masked, key: str | None = None, cache: Cache | None = None) -> Queries:
        """Begin what is to be asked about one input; a ``cache`` knows what was asked about it, and which it is."""
        if cache is None:
            content = x if masked.content is None else masked.content
            identity = identify(content, key, None if self.ledger is None else self.masker)
            cache = Cache(masked, self.on_error, identity, self.ledger, self.model_name or "")
        if isinstance(self.until, Top | Stderr):
            masked.structure.level(self.until.level)  # refuses one that the input does not have
        purse = Purse(None if self.money is None else self.money.amount)
        return Queries(cache, masked.rows_of(self.rows(masked, purse)), purse)

    def conversation(self, masked: Masked, queries: Queries) -> Conversation[Explanation]:
        """Ask about one input and return its explanation; whoever drives it decides on the batches."""
        moving = Moving.of(masked)
        if moving is None or self.preset == "paper":  # which asks about every leaf
            return (yield from self._conversation(masked, queries))
        last = masked.structure.depth - 1
        e = yield from relayed(
            self._conversation(moving.masked, queries, moving.places[-1]),
            lambda ask: replace(ask, level=last, masks=moving.whole(ask.masks, ask.level)),
        )
        return e.within(masked.structure, moving.places, masked.view, Descriptors.of(masked))

    def _conversation(
        self, masked: Masked, queries: Queries, leaves: IntArray | slice = slice(None)
    ) -> Conversation[Explanation]:
        """The same for an input all of whose leaves may matter; ``leaves`` are their numbers in the whole of it."""
        structure = masked.structure
        if isinstance(self.prior, Scout):  # which may have to be loaded, before anything is paid for
            self.prior.ready(self)
        tell = describe(self.model).outputs_of(masked.content, queries.cache.ledger, queries.cache.model_name)
        itself = np.ones(structure.leaves, dtype=np.bool_)
        answer = yield Ask(structure.depth - 1, np.vstack([itself, *masked.beside]))
        if not answer.ok[0]:
            why = queries.left_out or "".join(queries.notes[-1:]) or "it is left out"
            raise QueryError(f"the model gave no usable answer for the input itself; nothing can be explained ({why})")
        prediction = answer.outputs[0]
        told = tell(answer.outputs[1:])
        rows = self.rows(masked, queries.purse)  # which refuses too little money, before a scout is paid
        queries.notes += told.notes
        names = names_of(prediction, self.output_names or told.names)
        target = resolve_target(self.target, prediction, names)
        columns = np.arange(len(prediction))
        if self.outputs == "target" or (self.outputs == "auto" and len(prediction) > 32):
            columns = np.array([target])
        scale = self.link.at(prediction)
        descriptors = Descriptors.of(masked)
        expected: Expectation | None = None
        scouted: tuple[int, float | None] = 0, None
        if isinstance(self.prior, Scout):
            ahead = self.prior.found(self, queries, names, target)
            expected, scouted = ahead.expectation(names, columns, leaves), (ahead.rows, ahead.cost)
        elif self.prior is not None:
            expected = self.prior.expected(descriptors, [names[c] for c in columns], self.prior.kind(prediction, names))
        task = Task(
            structure,
            rows,
            scale(prediction),
            columns,
            target,
            self.seed,
            masked.allows_empty,
            neighbours=None if masked.neighbours is None else functools.cache(masked.neighbours),
            smooth_by_default=masked.smooth_by_default,
            identity=queries.cache.identity,
            tokens=told.tokens,
            expected=expected,
            at_once=not masked.by_level,
        )

        def ask(some: tuple[int, ...]) -> Conversation[Attribution]:
            return on_scale(self.method(replace(task, budget=some)), scale)

        if self.money is not None:
            splits = stages(self.method, structure, rows, self.budget)
            yield from until_priced(ask, splits, self.money, self.model, queries)
            rows = self.rows(masked, queries.purse)
            queries.budget = masked.rows_of(rows)
        column = int(np.flatnonzero(columns == target)[0])
        judge, splits = None, [rows]
        if self.until is not None:
            judge = Judge(self.until, masked, column, queries, self.money)
            splits = stages(self.method, structure, rows, self.budget)
        try:
            found, rows = yield from in_stages(ask, splits, judge)
        except QueryError as error:
            if not queries.unpaid:
                raise
            raise QueryError(
                f"{queries.left_out}, and method {self.method_name!r} has no result without; give more, or a "
                "budget in rows"
            ) from error
        from_prior = None
        if self.prior is not None:
            values, without = found.values[-1][:, column], found.without_prior
            part = 0.0 if without is None else expected_part(values, without[-1][:, column])
            worth = self.prior.worth.get(names[target], 0.0)
            from_prior = FromPrior(found.prior_share or 0.0, part, worth, without, *scouted)
        cost = None if describe(self.model).cost is None else queries.purse.cost
        held = scale.notes(queries.answers[:, target]) if self.link.unit else ()
        notes = (*held, *describe(self.model).notes)
        return Explanation(
            structure=structure,
            outputs=prediction,
            output_names=names,
            target=target,
            columns=tuple(int(c) for c in columns),
            all_values=found.values,
            all_intercepts=found.intercepts,
            all_stderr=found.stderr,
            queries=queries.used,
            diagnostics=diagnose(masked, found, column, queries, cost, notes, judge),
            view=masked.view,
            prior=from_prior,
            answer=told.answer,
            provenance={
                "c2fa": __version__,
                "numpy": np.__version__,
                "method": self.method_name,
                "settings": str(self.method),
                "budget": list(rows),
                "seed": self.seed,
                "link": self.link.name,
                "model": self.model_name or describe(self.model).called,
                **({"masker": masked.chosen} if masked.chosen else {}),
                **({"masks": "the paper's"} if masked.by_level else {}),
                **({} if self.until is None else {"until": str(self.until)}),
                **({} if self.prior is None else {"prior": self.prior.name}),
                **({} if self.money is None else {"money": self.money.text}),
            },
            descriptors=descriptors,
        )
