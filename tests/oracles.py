"""Second, slow, literal implementations, written from the mathematics and sharing no code with the package."""

from __future__ import annotations

import numpy as np
import pytest


def membership(structure, level):
    """M_l by its definition: entry (j, d) is 1 where walking up from leaf d arrives at j."""
    m = np.zeros((structure.widths[level], structure.leaves))
    for leaf in range(structure.leaves):
        node, at = leaf, structure.depth - 1
        while at > level:
            node, at = structure.parents[at - 1][node], at - 1
        m[node, leaf] = 1
    return m


def dense(problem):
    """The minimiser over leaves and intercepts, from one dense system with the intercepts as columns of their own."""
    s, levels = problem.structure, problem.levels
    outputs = levels[0].outputs.reshape(len(levels[0].outputs), -1).shape[1]
    with_b = [k for k, lv in enumerate(levels) if lv.intercept]
    size = s.leaves + len(with_b)
    a, r = np.zeros((size, size)), np.zeros((size, outputs))
    for k, lv in enumerate(levels):
        m = membership(s, k)
        z = np.zeros((len(lv.masks), size))
        z[:, : s.leaves] = lv.masks.astype(float) @ m
        if k in with_b:
            z[:, s.leaves + with_b.index(k)] = 1
        w = np.diag(lv.weights)
        a += z.T @ w @ z
        r += z.T @ w @ lv.outputs.reshape(len(lv.masks), -1)
        a[: s.leaves, : s.leaves] += m.T @ np.diag(np.full(len(m), 2 * lv.penalty.ridge)) @ m
    x = np.linalg.solve(a, r)
    beta = x[: s.leaves]
    values = tuple(membership(s, k) @ beta for k in range(s.depth))
    intercepts = tuple(x[s.leaves + with_b.index(k)] if k in with_b else np.zeros(outputs) for k in range(s.depth))
    covariance = np.linalg.inv(a)[: s.leaves, : s.leaves]
    return values, intercepts, covariance


def smoother(problem):
    """The matrix from outputs to fitted outputs, all levels' rows one after the other: one column for each output."""
    sizes = [len(lv.masks) for lv in problem.levels]
    columns = []
    for n in range(sum(sizes)):
        unit = np.split(np.eye(sum(sizes))[n], np.cumsum(sizes)[:-1])
        levels = [
            type(lv)(lv.masks, one, lv.weights, lv.penalty, lv.intercept)
            for lv, one in zip(problem.levels, unit, strict=True)
        ]
        values, intercepts, _ = dense(type(problem)(problem.structure, tuple(levels)))
        fitted = [lv.masks.astype(float) @ v[:, 0] + b[0] for lv, v, b in zip(levels, values, intercepts, strict=True)]
        columns.append(np.concatenate(fitted))
    return np.array(columns).T


def objective(problem, beta, intercepts):
    """The objective at any leaves and intercepts."""
    total = 0.0
    for k, lv in enumerate(problem.levels):
        value = membership(problem.structure, k) @ beta
        y = lv.outputs.reshape(len(lv.masks), -1)
        for n in range(len(lv.masks)):
            residual = y[n] - intercepts[k] - lv.masks[n].astype(float) @ value
            total += 0.5 * lv.weights[n] * np.sum(residual**2)
        total += lv.penalty.value(value)
    return total


def log_evidence(problem, variances, noises):
    """The density of contrasts of the answers that no intercept can reach, averaged over outputs."""
    from scipy.linalg import block_diag, null_space

    s, levels = problem.structure, problem.levels
    rows, noise, contrasts, outputs = [], [], [], []
    for k, lv in enumerate(levels):
        used = lv.weights > 0
        rows.append(lv.masks[used].astype(float) @ membership(s, k))
        noise.append(noises[k] / lv.weights[used])
        ones = np.ones((1, used.sum()))
        contrasts.append(null_space(ones) if lv.intercept else np.eye(used.sum()))
        outputs.append(lv.outputs.reshape(len(lv.masks), -1)[used])
    x, contrast, y = np.concatenate(rows), block_diag(*contrasts), np.concatenate(outputs)
    covariance = contrast.T @ (x @ np.diag(variances) @ x.T + np.diag(np.concatenate(noise))) @ contrast
    y = contrast.T @ y
    distance = np.einsum("ij,ij->j", y, np.linalg.solve(covariance, y))
    return -0.5 * (np.linalg.slogdet(covariance)[1] + distance.mean() + len(y) * np.log(2 * np.pi))


def algorithm_1(problem, lam_h, lam_l, mu1, mu2, iterations, sign):
    """Algorithm 1 line by line, with line 12's ``sign`` before mu1 alpha_bar: +1 corrected, -1 as printed."""
    high, low = problem.levels
    zh, zl = high.masks.astype(float), low.masks.astype(float)
    wh, wl = np.diag(high.weights), np.diag(low.weights)
    m = membership(problem.structure, 0)
    j, d = m.shape
    a = np.linalg.inv(zh.T @ wh @ zh + (mu1 + mu2) * np.eye(j))
    b = a @ zh.T @ wh @ high.outputs
    c = np.linalg.inv(zl.T @ wl @ zl + mu1 * np.eye(d) + mu2 * m.T @ m)
    dd = c @ zl.T @ wl @ low.outputs
    alpha_bar, beta, beta_bar = np.zeros(j), np.zeros(d), np.zeros(d)
    v1, v2, v3 = np.zeros(j), np.zeros(d), np.zeros(j)
    for _ in range(iterations):
        alpha = b + a @ (mu2 * m @ beta + sign * mu1 * alpha_bar - v1 - v3)
        alpha_bar = (v1 + mu1 * alpha) / (mu1 + 2 * lam_h)
        beta = dd + c @ (m.T @ v3 + mu1 * beta_bar + mu2 * m.T @ alpha - v2)
        beta_bar = (v2 + mu1 * beta) / (mu1 + 2 * lam_l)
        v1 = v1 + mu1 * (alpha - alpha_bar)
        v2 = v2 + mu1 * (beta - beta_bar)
        v3 = v3 + mu2 * (alpha - m @ beta)
    return alpha_bar, beta_bar


def convex(problem):
    """The minimiser by a general convex solver, for any penalties."""
    cp = pytest.importorskip("cvxpy")
    s = problem.structure
    beta = cp.Variable(s.leaves)
    loss, constraints = 0.0, []
    for k, lv in enumerate(problem.levels):
        value = membership(s, k) @ beta
        b = cp.Variable() if lv.intercept else 0.0
        residual = cp.multiply(np.sqrt(lv.weights), lv.outputs - b - lv.masks.astype(float) @ value)
        loss += 0.5 * cp.sum_squares(residual)
        p = lv.penalty
        name = type(p).__name__
        if name == "L2":
            loss += p.lam * cp.sum_squares(value)
        elif name == "L1":
            loss += p.lam * cp.norm1(value)
        elif name == "ElasticNet":
            loss += p.l1 * cp.norm1(value) + p.l2 * cp.sum_squares(value)
        if name == "NonNegative" or getattr(p, "positive", False):
            constraints.append(value >= 0)
    best = cp.Problem(cp.Minimize(loss), constraints).solve(
        solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
    )
    return beta.value, best


def shapley(game, n):
    """Exact Shapley values of ``game(mask) -> number`` over n players, by the subset formula."""
    from itertools import combinations
    from math import factorial

    values = np.zeros(n)
    for i in range(n):
        others = [p for p in range(n) if p != i]
        for size in range(n):
            weight = factorial(size) * factorial(n - size - 1) / factorial(n)
            for chosen in combinations(others, size):
                mask = np.zeros(n, dtype=bool)
                mask[list(chosen)] = True
                without = game(mask)
                mask[i] = True
                values[i] += weight * (game(mask) - without)
    return values


def orders(structure, level):
    """Every order of a level's features in which those of one parent come together, at every level above too."""
    from itertools import chain, permutations, product

    if level == 0:
        yield from permutations(range(structure.widths[0]))
        return
    for above in orders(structure, level - 1):
        each = [permutations(np.flatnonzero(structure.parents[level - 1] == p).tolist()) for p in above]
        for chosen in product(*each):
            yield tuple(chain(*chosen))


def winter_weights(structure, level):
    """Winter values as numbers for every mask: entry (feature, mask), the mask's bit i being leaf i.

    The value of a feature is the mean, over all orders that keep features of one parent together, of what it adds to
    those before it.
    """
    bits = membership(structure, level) @ 2 ** np.arange(structure.leaves)
    weights, count = np.zeros((structure.widths[level], 2**structure.leaves)), 0
    for order in orders(structure, level):
        count, before = count + 1, 0
        for feature in order:
            weights[feature, before] -= 1
            before += int(bits[feature])
            weights[feature, before] += 1
    return weights / count


def pair_weights(structure, level, first, second):
    """Shapley's interaction index of two features of one parent, in the same way.

    It is the mean, over the orders in which one comes right after the other, of what both add to those before them less
    what each of them does.
    """
    bits = membership(structure, level) @ 2 ** np.arange(structure.leaves)
    weights, count = np.zeros(2**structure.leaves), 0
    for order in orders(structure, level):
        at = order.index(first)
        if order[at + 1 : at + 2] != (second,):
            continue
        count, before = count + 1, int(sum(bits[feature] for feature in order[:at]))
        a, b = int(bits[first]), int(bits[second])
        weights[before + a + b] += 1
        weights[before + a] -= 1
        weights[before + b] -= 1
        weights[before] += 1
    return weights / count


def all_masks(leaves):
    """Every mask, in the order of those weights."""
    return (np.arange(2**leaves)[:, None] >> np.arange(leaves)) & 1 == 1


def product_kernel(weights, masks, others):
    """Π (1 + ρ_i x_i x_i') leaf by leaf, for rows of −1 and 1."""
    return np.array([[np.prod(1 + weights * x * y) for y in others] for x in masks])
