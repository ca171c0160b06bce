"""A page in a notebook that answers back: features are switched off, and more rows are spent, while one looks at it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import traitlets

from c2fa._system import need
from c2fa.asking.driver import Job, drive
from c2fa.asking.masking import Masked
from c2fa.asking.model import describe
from c2fa.asking.querying import Ask, Cache, Conversation, Queries
from c2fa.explainer import Explainer
from c2fa.explanation import Explanation
from c2fa.report import _side, repr_html
from c2fa.report._data import pack
from c2fa.report._page import asset, script, style
from c2fa.report._plain import facts
from c2fa.structure import BoolArray, FloatArray, Structure

AnyWidget: Any = need("anywidget", "live").AnyWidget


class Live(AnyWidget):  # type: ignore[misc]
    """An explanation to try out: what the model says with some features off, beside what was predicted of it.

    ``explanation`` is what was found so far; ``off`` are the leaves that are switched off, which can be set here too.
    Rows that were asked once are not asked again.
    """

    explanation: Explanation
    _esm = script(cited=True) + asset("live.js")
    style_sheet: Any = traitlets.Unicode(style()).tag(sync=True)
    block: Any = traitlets.Dict().tag(sync=True)
    parts: Any = traitlets.List().tag(sync=True)
    off: Any = traitlets.List().tag(sync=True)
    answer: Any = traitlets.Dict().tag(sync=True)

    def __init__(self, explainer: Explainer, x: Any, key: str | None = None) -> None:
        super().__init__()
        self._explainer = copy.copy(explainer)
        self._masked = explainer.under(explainer.masker(x))
        self._x, self._rows, self._cost = x, 0, 0.0
        first = explainer.queries(x, self._masked, key)
        self._cache = first.cache
        names = self._masked.structure.names
        owners = self._masked.structure.owners(0)
        self.parts = [
            {"name": name, "leaves": [[int(i), names[-1][i]] for i in np.flatnonzero(owners == j)]}
            for j, name in enumerate(names[0])
        ]
        self._show(self._drive(explainer.conversation(self._masked, first), first))
        self.on_msg(lambda _, message, __: self._told(lambda: self.more(message["rows"], message["part"])))
        self.observe(lambda change: self._told(self._switched), names="off")

    def more(self, rows: int = 100, part: int | None = None) -> None:
        """Spend more rows on the whole input, or on the leaves of one part while everything else stays."""
        if part is not None:
            self.answer = {**self._spent(), "part": self._closer(part, rows)}
            return
        before = self._explainer.budget
        grown = [int(n * (1 + rows / sum(before))) for n in before] if isinstance(before, tuple) else [before + rows]
        self._explainer.budget = tuple(grown) if isinstance(before, tuple) else grown[0]
        queries = self._explainer.queries(self._x, self._masked, cache=self._cache)
        self._show(self._drive(self._explainer.conversation(self._masked, queries), queries))

    def _closer(self, part: int, rows: int) -> list[list[str]]:
        """A part's leaves and their values with everything else kept, from rows of their own."""
        whole = self._masked.structure
        leaves = np.flatnonzero(whole.owners(0) == part)

        def inputs(masks: BoolArray, level: int) -> Any:
            full = np.ones((len(masks), whole.leaves), dtype=np.bool_)
            full[:, leaves] = masks
            return self._masked.inputs(full, whole.depth - 1)

        own = Structure.flat([whole.names[-1][i] for i in leaves])
        masked = Masked(own, inputs, rows_per_mask=self._masked.rows_per_mask, content=self._masked.content)
        explainer = copy.copy(self._explainer)
        explainer.budget, explainer.target = rows, self.explanation.target
        # Without the ledger, in which its masks would be taken for those of the whole input.
        cache = Cache(masked, explainer.on_error, self._cache.identity, None, "")
        queries = explainer.queries(self._x, masked, cache=cache)
        e = self._drive(explainer.conversation(masked, queries), queries)
        return [[name, e.rounded.signed(units)] for name, units in zip(e.names[0], e.rounded.values[0], strict=True)]

    def _switched(self) -> None:
        """Ask the model about the input without what is off."""
        e, structure = self.explanation, self._masked.structure
        on = np.ones((1, structure.leaves), dtype=np.bool_)
        on[0, self.off] = False

        def ask() -> Conversation[FloatArray]:
            reply = yield Ask(structure.depth - 1, on)
            first: FloatArray = reply.outputs[0]
            return first

        outputs = self._drive(ask(), Queries(self._cache, self._masked.rows_per_mask))
        says = float(e.link.at(e.outputs)(outputs[None])[0, e.target])
        self.answer = {
            **self._spent(),
            "says": says,
            "predicted": e.base + float(e.low[on[0]].sum()),
            "target": e.target_name,
            "unit": e.link.unit,
            "off": len(self.off),
        }

    def _told(self, act: Callable[[], None]) -> None:
        """Do what the page asks for; an error is told there."""
        try:
            act()
        except Exception as error:  # a model may raise anything
            self.answer = {**self._spent(), "error": f"{type(error).__name__}: {error}"}

    def _drive(self, conversation: Conversation[Any], queries: Queries) -> Any:
        [job] = drive([Job(conversation, queries)], self._explainer.model, batch_size=self._explainer.batch_size)
        self._rows += queries.sent
        self._cost += queries.cost
        return job.result()

    def _show(self, e: Explanation) -> None:
        self.explanation, self.off = e, []
        self.block = pack(e, facts(e), _side([e]))
        self.answer = self._spent()

    def _spent(self) -> dict[str, Any]:
        return {"rows": self._rows, "cost": None if describe(self._explainer.model).cost is None else self._cost}

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """The widget, and the page as it is now for where no kernel runs: a saved notebook, a converted one."""
        found = super()._repr_mimebundle_(**options)
        data, metadata = found if isinstance(found, tuple) else (found or {}, {})
        return {**data, "text/html": repr_html(self.explanation)}, metadata
