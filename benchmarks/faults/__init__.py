"""Attempts to make the library lose, repeat, change or leak something: kills, a bad server, bad arguments, bad disks.

    python -m benchmarks.faults [--only kills,shared,server,fuzz,flips,calls] [--quick] [--seed 0]

Every campaign counts, and every count should be 0:

==========  ===========================================================================================
lost        inputs or answers that are missing in the end
doubled     rows asked again although their answers had come, beyond the batches in flight at a kill
set aside   healthy inputs that are marked as failed
different   numbers that differ from those of an undisturbed run
silent      wrong numbers, or missing results, without any error or warning
raw         errors that are not clear sentences of the library's own, crashes, and calls that do not end
leaked      places in which the API key, or a piece of it, is found
==========  ===========================================================================================

Beside them stand, without a verdict: errors that are *vague*, which for a wrong argument are of the right kind and
raised in the library, but in Python's words ("'int' object is not iterable"); the rows that the model itself counted
(billed); and those that the library says it took (reported), which lack rows in flight at a kill or answered in vain.

The exit status is 1 where a count is above 0, and for each kind of case the first is shown, with what reproduces it. A
full run takes about fifteen minutes on two cores, ``--quick`` one. Everything happens in temporary folders and on
127.0.0.1.
"""
