"""What a budget buys: ``python -m benchmarks.queries``, or ``make bench-queries``.

========== ========================================================================================================
part       question
========== ========================================================================================================
a          how near leaves and parts come to Shapley values, beside other libraries, at 200 rows and others
additive   models that are exactly or nearly additive, and intervals with fewer, as many and more rows than leaves
until      how many rows a stopping rule saves against a fixed budget that is right as often
coverage   how often 95 % intervals hold the truth
cost       how long the library itself takes
prior      what explained inputs teach about others: a fine-tuned text network, and a table
scout      what a small classifier that goes ahead of a fine-tuned text network is worth
images     bags of images and a fine-tuned network, from a file of results
text       reviews and a fine-tuned network, from a file of results
========== ========================================================================================================

Every table names its target and says whether it is reached. All numbers come with intervals: inputs (or models) drawn
anew with replacement, after the seeds of each have been averaged.
"""
