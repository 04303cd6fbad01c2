"""Evidence: rounds of votes become, pair by pair, votes and opportunities; then counts, then the pairs to promote.

The readings of the published posterior (settings link.posterior_update and link.evidence) differ only here:
all_pairs      every pair ever proposed had an opportunity in every view so far;
proposed_pairs a pair had opportunities only in rounds that proposed it, and only pairs of this round can be promoted;
out_of_bag     votes and opportunities count only in views that do not hold the pair as an anchor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def standing(evidence: DataFrame, views: Sequence[int], update: str, out_of_bag: bool) -> DataFrame:
    """Every candidate pair after the last of some rounds, with votes and opportunities (columns schemas.STANDING).

    evidence: schemas.EVIDENCE; later rounds in it are ignored. views: how many views each of the rounds had, in order.
    """
    from pyspark.sql import functions as F

    round_number = len(views)
    proposed = F.col("proposals") > 0
    now = F.col("round") == round_number
    own = F.col("self_votes") if out_of_bag else F.lit(0)
    held = F.col("held") if out_of_bag else F.lit(0)
    if update == "all_pairs":
        opportunities = F.lit(sum(views)) - F.sum(held)
    else:
        opportunities = F.sum(F.when(proposed, F.col("views") - held).otherwise(0))
    last = F.when(proposed, F.col("round"))
    pairs = (
        evidence.where(F.col("round") <= round_number)
        .groupBy("source_row", "target_row")
        .agg(
            F.sum(F.col("proposals") - own).alias("votes"),
            opportunities.cast("bigint").alias("opportunities"),
            # Scores of the last round that proposed the pair: earlier ones come from fewer and worse anchors.
            F.max_by(F.col("score_nano") / F.col("proposals") / 1e9, last).alias("score"),
            F.max_by(F.col("margin_nano") / F.col("proposals") / 1e9, last).alias("margin"),
            F.max(F.when(now, F.col("proposals") - F.col("self_votes")).otherwise(0)).alias("recent_votes"),
            (F.lit(views[-1]) - F.max(F.when(now, F.col("held")).otherwise(0))).alias("recent_opportunities"),
            F.max(last).alias("last_round"),
        )
    )
    candidates = F.col("last_round") == round_number if update == "proposed_pairs" else F.col("last_round").isNotNull()
    return pairs.where(candidates).drop("last_round")


def tally(pairs: DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many pairs have how many votes of how many opportunities: three int64 arrays (votes, opportunities, count).

    What comes to the driver grows with the number of views, not of pairs.
    """
    table = pairs.groupBy("votes", "opportunities").count().toArrow()
    votes, opportunities, count = (table.column(c).to_numpy() for c in ("votes", "opportunities", "count"))
    order = np.lexsort((opportunities, votes))
    return votes[order], opportunities[order], count[order]


def at_or_above(pairs: DataFrame, threshold: float) -> pa.Table:
    """The pairs whose posterior mean reaches the threshold (about 64 bytes each on the driver), sorted by rows."""
    from pyspark.sql import functions as F

    # The same two sums and one division as kernels.posterior_mean, so both sides agree to the last bit.
    posterior = (F.lit(1.0) + F.col("votes")) / (F.lit(2.0) + F.col("opportunities"))
    table = pairs.where(posterior >= F.lit(threshold)).toArrow()
    return table.sort_by([("source_row", "ascending"), ("target_row", "ascending")])
