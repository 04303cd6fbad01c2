"""Columns of every table veclink writes, as Spark DDL strings.

Row numbers (`*_row`) are internal: dense, from 0, in the order of the sorted ids of one prepared cloud.
Sums that must not depend on the order of addition are kept as whole numbers: `*_nano` is 1e-9 of the unit.
"""

# The two row numbers that name a pair of points.
ROWS = ("source_row", "target_row")

# A prepared cloud is four tables.
POINTS = "row BIGINT, vector ARRAY<FLOAT>"  # one row per distinct vector, unit length
IDS = "id STRING, row BIGINT, copies INT"  # every accepted id; copies: ids that share this vector
REJECTS = "id STRING, reason STRING, detail STRING"
STATISTICS = (
    "encoder STRING, input STRING, input_version STRING, prepare_key STRING, dim INT, "
    "rows_read BIGINT, rows_kept BIGINT, rows_rejected BIGINT, points BIGINT, duplicate_rows BIGINT, "
    "norm_min DOUBLE, norm_mean DOUBLE, norm_max DOUBLE, rejects_by_reason MAP<STRING, BIGINT>, "
    "warnings ARRAY<STRING>"
)

# What prepare writes on its way, so that later steps cannot see the source change under them.
# norm: L2 norm of the vector as it came; digest: 16 bytes, equal for equal vectors; both null where there is a reason.
CHECKED = "id STRING, encoder STRING, reason STRING, detail STRING, norm DOUBLE, digest BINARY, vector ARRAY<FLOAT>"
# Every row without its vector. row, copies: null where there is a reason; first: this id stands for its point.
JUDGED = "id STRING, reason STRING, detail STRING, norm DOUBLE, row BIGINT, copies INT, first BOOLEAN"

# What views say of a pair. proposals: views that propose it; held: views that hold it as an anchor; self_votes: views
# that do both. score (csls) and margin (lead over the runner-up) are sums over the proposing views.
PROPOSALS = (
    "source_row BIGINT, target_row BIGINT, proposals INT, held INT, self_votes INT, "
    "score_nano BIGINT, margin_nano BIGINT"
)

# The same, summed over a round; `views` is how many views the round had.
EVIDENCE = f"round INT, views INT, {PROPOSALS}"

# A pair's evidence after some round. recent_*: of that round alone and out of bag.
STANDING = (
    "source_row BIGINT, target_row BIGINT, votes BIGINT, opportunities BIGINT, score DOUBLE, margin DOUBLE, "
    "recent_votes INT, recent_opportunities INT"
)

# What a row of a consensus round speaks of. candidate: a pair that views propose. no_target, no_source: a decoy, what
# an anchor's source is matched with when its target is left out, and the other way round. carried: an anchor of the
# next round that this round did not propose.
CANDIDATE, NO_TARGET, NO_SOURCE, CARRIED = "candidate", "no_target", "no_source", "carried"

# What the views of a consensus round propose, out of bag. Sums over the voting views: csls, its lead over the best
# other partner of either row, either row's density.
CANDIDATES = (
    "role STRING, source_row BIGINT, target_row BIGINT, votes BIGINT, score_nano BIGINT, source_lead_nano BIGINT, "
    "target_lead_nano BIGINT, source_density_nano BIGINT, target_density_nano BIGINT"
)

# A consensus round's verdicts. promoted: an anchor of the next round.
JUDGED_PAIRS = (
    "round INT, source_row BIGINT, target_row BIGINT, role STRING, confidence DOUBLE, promoted BOOLEAN, votes BIGINT, "
    "opportunities BIGINT, score DOUBLE, source_lead DOUBLE, target_lead DOUBLE, source_density DOUBLE, "
    "target_density DOUBLE"
)

# What the seed audit found. seed: position among the seeds, in the order of their ids. source_rank: share of the
# target points nearer to the seed's source than its partner, under a map of the first anchors; target_rank the other
# way round.
SEED_AUDIT = "seed BIGINT, source_rank DOUBLE, target_rank DOUBLE, dropped BOOLEAN"

# sources: source rows that took part in the round.
ITERATIONS = (
    "round INT, sources BIGINT, views INT, view_size INT, anchors_before BIGINT, pairs_proposed BIGINT, "
    "threshold DOUBLE, anchors BIGINT, recovery DOUBLE, seconds DOUBLE"
)

LINKS = (
    "source_id STRING, target_id STRING, confidence DOUBLE, votes BIGINT, opportunities BIGINT, score DOUBLE, "
    "margin DOUBLE, is_seed BOOLEAN, source_copies INT, target_copies INT, source_lead DOUBLE, target_lead DOUBLE, "
    "source_density DOUBLE, target_density DOUBLE"
)

LINK_REJECTS = f"side STRING, {REJECTS}"

PAIRS = "source_id STRING, target_id STRING"

# What `cycles` writes. source_cloud, target_cloud, cloud: numbers in the report's list of clouds; the source's is the
# lower one. closed, broken, open: loops of three clouds that the link is in (kernels/cycles.py).
JUDGED_LINKS = (
    "source_cloud INT, target_cloud INT, source_id STRING, target_id STRING, confidence_before DOUBLE, "
    "confidence DOUBLE, closed BIGINT, broken BIGINT, open BIGINT, is_seed BOOLEAN"
)
# Links that chains call for. through: clouds whose points the chains go over.
SUGGESTED = "source_cloud INT, target_cloud INT, source_id STRING, target_id STRING, confidence DOUBLE, through BIGINT"
GROUPS = "group BIGINT, cloud INT, id STRING"

# One row. report, inputs, settings, environment: JSON objects.
RUN = "run_key STRING, writer STRING, status STRING, report STRING, inputs STRING, settings STRING, environment STRING"


def columns(ddl: str) -> list[str]:
    """Column names of a DDL string whose types hold no comma."""
    return [part.split()[0] for part in ddl.split(", ")]


def casts(ddl: str) -> list[str]:
    """SQL expressions that select the columns of a DDL string in its order and types."""
    return [f"CAST({name} AS {kind}) AS {name}" for name, kind in (part.split() for part in ddl.split(", "))]
