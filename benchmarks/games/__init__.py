"""How close estimates of Owen and Shapley values come on games whose every mask is tabulated.

A game is a table of a model's outputs for all 2^d masks of its d leaves, so its exact values are sums over the table.
Methods with parts are compared with the Owen values of leaves and parts, methods without parts with the Shapley values
of the leaves. All have the same rows, with those of the full and the empty input among them.

Methods: any of c2fa's by its name, over the tree of parts, where "shapley" and "shap-kernel" are over leaves without
parts; flat:NAME for any of c2fa's over leaves without parts; leverage, regression-msr and regression-msr-one (one model of
trees for all rows, as its authors run it); shapiq:NAME for an estimator of the package shapiq.

    python -m benchmarks.games                                  all kinds, the methods that are installed
    python -m benchmarks.games FOLDER --kinds vit16 --games 5   the first five of one kind, of other tables
    python -m benchmarks.games --methods owen,shapley --beside peers.json   others' results are taken from a file
"""
