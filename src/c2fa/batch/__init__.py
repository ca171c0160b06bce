"""Many inputs: a store that resumes, engines that run it, and what all explanations have in common.

``many`` explains a dataset into a folder; ``Store.open`` reads it back. ``in_memory`` explains inputs here and returns
their explanations, without a folder.
"""

from __future__ import annotations

from c2fa.batch.isolation import Health, Isolation, ModelDownError, NoAnswerError
from c2fa.batch.many import Recipe, many
from c2fa.batch.memory import in_memory
from c2fa.batch.overview import Explanations, NotExplainedError
from c2fa.batch.packing import Item, Outcome, packed
from c2fa.batch.records import StoreError
from c2fa.batch.run import BatchError
from c2fa.batch.store import Store
from c2fa.engines import WorkerError
from c2fa.models.http.limits import Bucket, Limited

__all__ = [
    "BatchError",
    "Bucket",
    "Explanations",
    "Health",
    "Isolation",
    "Item",
    "Limited",
    "ModelDownError",
    "NoAnswerError",
    "NotExplainedError",
    "Outcome",
    "Recipe",
    "Store",
    "StoreError",
    "WorkerError",
    "in_memory",
    "many",
    "packed",
]
