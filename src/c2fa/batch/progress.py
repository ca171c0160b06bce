"""A bar over the inputs of a run."""

from __future__ import annotations

import time
from typing import Any

from c2fa.batch.packing import Report


class Progress:
    """A bar over the inputs of a run; inputs of earlier runs count as done from the start."""

    def __init__(self, total: int | None, shown: bool) -> None:
        self._begin = time.monotonic()
        self._bar: Any = None
        if shown:
            from tqdm.auto import tqdm

            bar = tqdm(total=total, unit="input", desc="explaining", smoothing=0.1)
            self._bar = None if bar.disable else bar  # as TQDM_DISABLE=1 does

    def skip(self, inputs: int) -> None:
        """Count inputs that were finished before; they must not make the time left look short."""
        if self._bar is not None:
            self._bar.initial += inputs
            self._bar.n += inputs
            self._bar.refresh()

    def show(self, report: Report) -> None:
        """Show what the run took so far: rows a second, workers, inputs set aside, and the cost."""
        if self._bar is None:
            return
        said = [f"{report.rows / max(time.monotonic() - self._begin, 1e-9):,.0f} rows/s"]
        if report.workers > 1:
            said.append(f"{report.workers} workers")
        if report.failed:
            said.append(f"{report.failed} set aside")
        if report.cost:
            said.append(f"cost {report.cost:.4g}")
        self._bar.set_postfix_str(", ".join(said), refresh=False)
        self._bar.update(self._bar.initial + report.inputs - self._bar.n)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
