"""Everything a solver may know: a structure, and for each level what was asked and what came back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg.blas import dsyrk

from c2fa.graph import Smoother
from c2fa.penalties import L2, Penalty, check_penalty
from c2fa.structure import BoolArray, FloatArray, Structure


@dataclass(frozen=True, eq=False)
class Level:
    """One level's masks, outputs and weights, with its penalty and whether it has an intercept.

    Parameters
    ----------
    masks
        Boolean, (n, width); True keeps a feature.
    outputs
        What the model answered, (n,) or (n, outputs).
    weights
        One for each row, at least 0; None means 1 each.
    penalty
        The regulariser of this level's attributions.
    intercept
        Whether the level has an unpenalised intercept: what the model says of an input with nothing in it.
    smooth
        For the finest level: its values are ``β = S u``, smoothed over neighbours, and what is looked for and
        penalised is ``u``. Sums over tied leaves are those of ``u``, so that parts do not change by it.
    """

    masks: BoolArray
    outputs: FloatArray
    weights: FloatArray = None  # type: ignore[assignment]  # None is turned into ones below
    penalty: Penalty = field(default_factory=lambda: L2(0.1))
    intercept: bool = False
    smooth: Smoother | None = None

    def __post_init__(self) -> None:
        masks = np.asarray(self.masks)
        if masks.ndim != 2:
            raise ValueError(f"masks must have shape (n, width); got {masks.shape}")
        if masks.dtype != np.bool_:
            if not np.isin(masks, (0, 1)).all():
                raise ValueError("masks must hold only 0 and 1 (or booleans)")
            masks = masks.astype(np.bool_)
        n = len(masks)
        if n == 0:
            raise ValueError("a level needs at least one row of masks and outputs")
        outputs = _finite("outputs", self.outputs)
        if outputs.ndim not in (1, 2) or len(outputs) != n:
            raise ValueError(
                f"outputs must have one row for each of {n} masks, as (n,) or (n, outputs); got shape {outputs.shape}"
            )
        weights = np.ones(n) if self.weights is None else _finite("weights", self.weights)
        if weights.shape != (n,) or (weights < 0).any():
            raise ValueError(f"weights must be {n} numbers of at least 0, one for each mask")
        if not weights.any():
            raise ValueError("all weights are 0, so no row counts; use another kernel or other masks")
        check_penalty(self.penalty)
        ridge = self.penalty.ridge
        if isinstance(ridge, np.ndarray) and ridge.shape != (masks.shape[1],):
            raise ValueError(f"the penalty has {len(ridge)} strengths for {masks.shape[1]} features; give one for each")
        object.__setattr__(self, "masks", masks)
        object.__setattr__(self, "outputs", outputs)
        object.__setattr__(self, "weights", weights)

    def scaled(self, factor: float) -> Level:
        """The same rows, all weights multiplied by one factor; what was computed of them is shared."""
        return self if factor == 1.0 else self.changed(weights=self.weights * factor, rows=self.rows.scaled(factor))

    def penalised(self, penalty: Penalty) -> Level:
        """The same rows under another penalty."""
        return self.changed(penalty=penalty, rows=self.rows)

    def of_output(self, column: int) -> Level:
        """The same rows with one of their outputs."""
        return self.changed(outputs=self.outputs[:, column], rows=self.rows.of_output(column))

    def changed(self, **changes: Any) -> Level:
        """A copy that is not checked again; ``rows`` are among the changes where they need not be made anew."""
        copy = object.__new__(Level)
        same = {name: vars(self)[name] for name in ("masks", "outputs", "weights", "penalty", "intercept", "smooth")}
        vars(copy).update(same | changes)
        return copy

    @property
    def width(self) -> int:
        """The number of features of the level."""
        return int(self.masks.shape[1])

    @cached_property
    def rows(self) -> Rows:
        """The level as plain least squares: weights multiplied in, the intercept taken out."""
        root = np.sqrt(self.weights)
        y = self.outputs if self.outputs.ndim == 2 else self.outputs[:, None]
        if not self.intercept:
            return Rows(self.masks, root, None, np.zeros(y.shape[1]), y * root[:, None], self.smooth)
        share = self.weights / self.weights.sum()
        means = share @ self.masks
        # The mean of equal numbers need not be that number, but the mean of zeros is 0: a constant leaves nothing.
        above = y - y[0]
        mean_above = share @ above
        return Rows(self.masks, root, means, y[0] + mean_above, (above - mean_above) * root[:, None], self.smooth)

    @cached_property
    def usual_weight(self) -> float:
        """The median weight of the rows that count."""
        ordered = np.sort(self.weights[self.weights > 0])  # a third of the time that np.median takes
        return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2.0

    def smoothed(self, u: FloatArray) -> FloatArray:
        """The level's values, (width, outputs), from what was looked for."""
        return u if self.smooth is None else self.smooth(u.T).T

    def predict(self, values: FloatArray, intercept: FloatArray) -> FloatArray:
        """What the surrogate says of the level's own masks, (n, outputs)."""
        product: FloatArray = self.masks @ values
        return product + intercept

    def loss(self, values: FloatArray, intercept: FloatArray) -> FloatArray:
        """Half the weighted sum of squared residuals, for each output."""
        y = self.outputs if self.outputs.ndim == 2 else self.outputs[:, None]
        residual = y - self.predict(values, intercept)
        loss: FloatArray = 0.5 * (self.weights @ np.square(residual))
        return loss


@dataclass(frozen=True, eq=False)
class Rows:
    """A level's rows with weights multiplied in; where there is an intercept, masks and outputs are centred.

    Centring by the weighted means is what eliminating an unpenalised intercept comes to; the intercept is read
    off afterwards as ``mean_outputs − means · values``. ``like`` are the same rows under other weights, all of them
    multiplied by ``factor``: what was computed of those need not be computed again.
    """

    masks: BoolArray
    root: FloatArray
    means: FloatArray | None
    mean_outputs: FloatArray
    targets: FloatArray
    smooth: Smoother | None = None
    like: Rows | None = None
    factor: float = 1.0

    def scaled(self, factor: float) -> Rows:
        """The rows where all weights are multiplied by a factor."""
        root = np.sqrt(factor)
        return replace(self, root=self.root * root, targets=self.targets * root, like=self, factor=factor)

    def of_output(self, column: int) -> Rows:
        """The rows with one of their outputs."""
        one = slice(column, column + 1)
        return replace(self, mean_outputs=self.mean_outputs[one], targets=self.targets[:, one], like=self, factor=1.0)

    def write(self, out: FloatArray) -> FloatArray:
        """Write the (n, width) matrix for which plain least squares against ``targets`` is the level's loss."""
        known, factor = self.like, self.factor
        while known is not None and "design" not in vars(known):
            factor *= known.factor
            known = known.like
        if known is not None:
            return np.multiply(known.design, np.sqrt(factor), out=out)
        if self.means is None:
            np.multiply(self.masks, self.root[:, None], out=out)
        else:
            np.subtract(self.masks, self.means, out=out)
            out *= self.root[:, None]
        if self.smooth is not None:
            out[...] = self.smooth(out)
        return out

    @cached_property
    def design(self) -> FloatArray:
        """That matrix, to be kept."""
        return self.write(np.empty(self.masks.shape))

    @cached_property
    def gram(self) -> FloatArray:
        """``design' design`` in its lower triangle: a symmetric product costs half of a general one."""
        if self.like is not None:
            return self.like.gram * self.factor
        gram: FloatArray = dsyrk(1.0, self.design.T, lower=1)
        return gram

    def intercept(self, values: FloatArray) -> FloatArray:
        """The best intercept for given values of the level, (outputs,)."""
        if self.means is None:
            return np.zeros(values.shape[1])
        best: FloatArray = self.mean_outputs - self.means @ values
        return best


@dataclass(frozen=True, eq=False)
class Problem:
    """A structure and its levels, coarse to fine: find leaf values whose sums fit every level.

    ``min over β, b of Σ_l ½‖W_l^½ (Y_l − b_l − Z_l M_l β)‖² + Σ_l Ω_l(M_l β)``
    """

    structure: Structure
    levels: tuple[Level, ...]

    def __post_init__(self) -> None:
        levels = tuple(self.levels)
        if len(levels) != self.structure.depth:
            raise ValueError(
                f"the structure has {self.structure.depth} levels but {len(levels)} were given; "
                "give one Level for each, coarse to fine"
            )
        for k, (level, width) in enumerate(zip(levels, self.structure.widths, strict=True)):
            if level.width != width:
                raise ValueError(
                    f"masks of level {k} must have shape (n, {width}), one column for each feature; "
                    f"got {level.masks.shape}"
                )
            if level.smooth is not None:
                if k < self.structure.depth - 1:
                    raise ValueError(f"only the finest level can be smooth, and level {k} is not the finest")
                level.smooth.graph.check(self.structure)
        shapes = {level.outputs.shape[1:] for level in levels}
        if len(shapes) > 1:
            raise ValueError(f"the levels' outputs differ in width: {sorted(shapes)}; ask the same model at each")
        object.__setattr__(self, "levels", levels)

    def with_levels(self, levels: Sequence[Level]) -> Problem:
        """The same problem with copies of its levels, which need no check."""
        copy = object.__new__(Problem)
        object.__setattr__(copy, "structure", self.structure)
        object.__setattr__(copy, "levels", tuple(levels))
        return copy

    @property
    def outputs(self) -> int:
        """The number of outputs; 1 for outputs of shape (n,)."""
        first = self.levels[0].outputs
        return 1 if first.ndim == 1 else first.shape[1]

    @property
    def queries(self) -> int:
        """The number of rows over all levels."""
        return sum(len(level.masks) for level in self.levels)

    @cached_property
    def design(self) -> FloatArray:
        """All levels' rows over the leaves, (queries, leaves): ``½‖targets − design β‖²`` is the whole loss."""
        blocks = np.empty((self.queries, self.structure.leaves))
        start = 0
        for k, level in enumerate(self.levels):
            block = blocks[start : start + len(level.masks)]
            if k == self.structure.depth - 1:
                level.rows.write(block)
            else:
                np.take(level.rows.design, self.structure.owners(k), axis=1, out=block)
            start += len(block)
        return blocks

    def gram(self) -> FloatArray:
        """``design' design`` in its lower triangle, to which the levels' own are added."""
        above = self.design[: -len(self.levels[-1].masks)]
        finest = self.levels[-1].rows.gram
        gram: FloatArray = dsyrk(1.0, above.T, beta=1.0, c=finest, lower=1) if len(above) else finest.copy(order="F")
        return gram

    @cached_property
    def targets(self) -> FloatArray:
        """All levels' outputs, weighted and centred like ``design``, (queries, outputs)."""
        return np.concatenate([level.rows.targets for level in self.levels])


def _finite(name: str, values: npt.ArrayLike) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers: {error}") from error
    if not np.isfinite(array).all():
        bad = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
        raise ValueError(f"{name} hold NaN or infinity in rows {bad[:5].tolist()}; drop or repair these rows")
    return array
