"""Smaller gradients on the wire: what a bucket becomes before it is summed, and what the sum becomes.

All codecs are lossy but `none`; none is used unless the script names it. The formulas, their
sources and what survives a change of the view are in `docs/design/elastic-codecs.md`. Nothing here sends
anything.

- `base`               the interface of codecs, error feedback, and the exchange of many buckets
- `half`, `powersgd`   the codecs
- `catalogue`          codecs by name; the plan of a job
"""

from __future__ import annotations

from shoal.elastic.codecs.base import Bucket, Codec
from shoal.elastic.codecs.catalogue import make

__all__ = ["Bucket", "Codec", "make"]
