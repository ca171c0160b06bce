"""How close estimates of Owen and Shapley values come on games whose every mask is tabulated.

A game is a table of a model's outputs for all 2^d masks of its d leaves, so its exact values are sums over the table.
Methods with parts are compared with the Owen values of leaves and parts, methods without parts with the Shapley values
of the leaves. All have the same rows, with those of the full and the empty input among them.

Methods: any of c2fa's by its name, over the tree of parts, or over leaves without parts as flat:NAME ("shapley" and
"shap-kernel" always are); leverage; regression-msr, as its authors run it, and regression-msr-crossed, without the
bias of fitting and correcting with the same rows; shapiq:NAME, an estimator of the package shapiq.

Error: the squared error summed over a game's values, over their sum of squares about their mean; medians over games.

    python -m benchmarks.games                                  all kinds, the methods that are installed
    python -m benchmarks.games FOLDER --kinds vit16 --games 5   the first five of one kind, of other tables
    python -m benchmarks.games --methods owen,shapley --beside peers.json   others' results are taken from a file
"""
