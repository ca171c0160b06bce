"""What is expected of an input before it is asked about: by other inputs (``Prior``) or a cheap model (``scout``)."""

from c2fa.priors.prior import Prior
from c2fa.priors.scouting import Scout, scout

__all__ = ["Prior", "Scout", "scout"]
