"""What a long run shows: inputs, rows a second, time left, cost."""

from __future__ import annotations

import time
from typing import Any

from c2fa.batch.work import Report


class Progress:
    """A bar over the inputs of a run; inputs of earlier runs count as done from the start."""

    def __init__(self, total: int | None, shown: bool) -> None:
        self._total, self._shown = total, shown
        self._begin = time.monotonic()
        self._skipped = 0
        self._sum = Report()
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if self._shown:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=self._total, unit="input", desc="explaining", smoothing=0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def skip(self, inputs: int) -> None:
        """Inputs that were finished before; they must not make the time left look short."""
        self._skipped += inputs
        if self._bar is not None:
            self._bar.initial += inputs
            self._bar.n += inputs
            self._bar.refresh()

    def add(self, report: Report) -> None:
        """A shard was finished."""
        self._sum = self._sum + report
        if self._bar is not None:
            self._bar.set_postfix_str(self.words(), refresh=False)
            self._bar.update(report.inputs)

    def words(self) -> str:
        """Rows a second, what was set aside, and what it cost, where it costs anything."""
        seconds = max(time.monotonic() - self._begin, 1e-9)
        said = [f"{self._sum.rows / seconds:,.0f} rows/s"]
        if self._sum.failed:
            said.append(f"{self._sum.failed} set aside")
        if self._sum.cost:
            said.append(f"cost {self._sum.cost:.4g}")
        return ", ".join(said)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
