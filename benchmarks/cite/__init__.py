"""Which sentences and documents an answer rests on, by ``cite`` and by its peers: ``python -m benchmarks.cite``.

    python -m benchmarks.cite --frozen FILE [FILE …]  # the tables, from rows that were recorded: no model is needed
    python -m benchmarks.cite --model hf:FOLDER --device cuda --workers 12 --record FILE  # records them
    python -m benchmarks.cite --dry --items 70        # how many rows that would be
    python -m benchmarks.cite --speed --model hf:FOLDER --device cuda --families nq10 --items 50  # rows a second
    python -m benchmarks.cite --speed --model random --device cuda --items 50  # of SmolLM2's shape, without weights

======= =============================================================================================================
family  contexts
======= =============================================================================================================
qed     one paragraph of Wikipedia and a question about it; the sentence that answers it is known
nq5     the paragraph that answers a question among four others of other questions, in a random place
nq10    the same among nine others
======= =============================================================================================================

The model writes an answer of at most 48 tokens, which is then explained by every method at every budget and seed. A
row of an item is asked once, whoever asks for it; each method's budget counts the rows that it uses all the same. The
prompt with all documents and the one with none are among the rows of every method, as they are in ``cite``. All
explanations of an item are scored on the same masks of each level (``--fresh``), drawn apart from what is fitted;
of a paragraph of five sentences there are only 32, so that a large budget has seen them all.

A file has the mask of every row and the log-probabilities of the answer's tokens, how documents are cut into sentences
and which of them are the evidence, and the answers; no text of a document or question. Questions and passages are of
Natural Questions and QED (Google, CC BY-SA 3.0, https://ai.google.com/research/NaturalQuestions), from which answers
may quote. A context is in the file when it is finished: the same call goes on where it was cut, and more methods and
parts can be added later. From a file, a row that is not there is an error. A method of one's own chooses among the
masks that are::

    record = benchmarks.cite.rows.Record(Path("FILE"))
    for one in record.contexts.values():
        rows = Rows(one.context, one.rows)
        masks = rows.pool()                       # (rows, sentences)
        scores = rows.at(masks).sum(axis=1)       # what the model said of the whole answer

``top3 drop`` needs a row that depends on the method's own values; where a file lacks it, the item is left out of it.

``--parts sentences,words`` also explains words: lds is that of masks of the words in the two sentences without
which the answer is least likely, all other sentences kept, and the top words are those of the whole context.

``--parts sentences,intervals`` also counts how often the 90 % intervals of sentences and documents hold a reference:
plain least squares on 1,024 other rows of the level (``--reference``), or on all masks of few units. The reference has
an error of its own, which is added to the interval's, and left out under "reference as exact". Documents have two such
references, rows that remove whole documents and the sums of their sentences', which need not agree: no additive
description holds both where they do not. Sentences' Owen values, from as many rows of random orders, and documents'
Shapley values, from all of their masks, are what ``method="owen"`` is after. Where a budget pays for all masks, nothing
is left to cover, and the cell says so.

Settings are chosen on ``--half first``; the contexts of a half leave out the questions of QED's other half.
"""
