"""Two large clouds with known truth, written block by block: what scale is measured on.

    python -m bench.large_clouds FOLDER --rows 100000 [--noise .2] [--overlap .3] [--seeds 30] [--draw 0]

The law: an object is a point of a 16-dimensional latent space, drawn about one of 1,000 centres (centres and the
spread about them have variance 1). Each encoder sees tanh(latent W / 4) with a normal W of its own, of 384 and of 768
dimensions, and adds normal noise of its own in every dimension. `overlap` of all objects are on both sides, the rest on
one. FOLDER gets source/ and target/ (Parquet: id, vector), seeds.csv and truth.parquet (source_id, target_id).
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from veclink import arrow_cols

LATENT, CENTRES, DIMS = 16, 1_000, (384, 768)
BLOCK = 50_000


@dataclass(frozen=True)
class Law:
    """rows: of either cloud. overlap: share of all objects that are in both. noise: its standard deviation."""

    rows: int
    overlap: float
    noise: float
    draw: int

    @property
    def shared(self) -> int:
        """Objects in both clouds: they come first."""
        return round(2 * self.rows * self.overlap / (1 + self.overlap))

    def objects(self, side: int) -> np.ndarray:
        """Numbers of a side's objects: the shared ones, then its own."""
        own = self.rows + side * (self.rows - self.shared)
        return np.r_[: self.shared, own - self.rows + self.shared : own]

    def names(self, side: int) -> np.ndarray:
        """Ids of a side's objects in their order: numbers that chance has mixed."""
        mixed = np.random.default_rng([self.draw, 3, side]).permutation(self.rows)
        return np.char.add("ab"[side], np.char.zfill(mixed.astype(str), 9))

    def vectors(self, side: int, objects: np.ndarray) -> np.ndarray:
        """What the encoder of a side makes of some objects, all of the same block: float32 rows."""
        block = int(objects[0]) // BLOCK
        world = np.random.default_rng([self.draw, 0])
        centres = world.standard_normal((CENTRES, LATENT), np.float32)
        warps = [world.standard_normal((LATENT, d), np.float32) for d in DIMS]
        rng = np.random.default_rng([self.draw, 1, block])
        latent = centres[rng.integers(CENTRES, size=BLOCK)] + rng.standard_normal((BLOCK, LATENT), np.float32)
        seen = np.tanh(latent[objects % BLOCK] @ warps[side] / 4)
        noise = np.random.default_rng([self.draw, 2, side, block]).standard_normal((BLOCK, DIMS[side]), np.float32)
        return seen + np.float32(self.noise) * noise[objects % BLOCK]

    def blocks(self, side: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Ids and vectors of a side, a block of objects at a time."""
        objects, names = self.objects(side), self.names(side)
        number = objects // BLOCK
        for block in np.unique(number):
            mine = number == block
            yield names[mine], self.vectors(side, objects[mine])


def write(folder: Path, law: Law, seeds: int) -> None:
    """Clouds, seeds and truth."""
    for side, name in enumerate(("source", "target")):
        (folder / name).mkdir(parents=True)
        for i, (ids, vectors) in enumerate(law.blocks(side)):
            table = pa.table({"id": pa.array(ids), "vector": arrow_cols.column(vectors)})
            pq.write_table(table, folder / name / f"part{i:04d}.parquet", compression="none", row_group_size=10_000)
    names = [law.names(side)[: law.shared] for side in (0, 1)]
    pq.write_table(pa.table({"source_id": names[0], "target_id": names[1]}), folder / "truth.parquet")
    chosen = np.random.default_rng([law.draw, 4]).choice(law.shared, seeds, replace=False)
    with (folder / "seeds.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["source_id", "target_id"])
        rows.writerows(zip(names[0][chosen], names[1][chosen], strict=True))


def main() -> None:
    """Write one pair of clouds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--noise", type=float, default=0.2)
    parser.add_argument("--overlap", type=float, default=0.3)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--draw", type=int, default=0)
    args = parser.parse_args()
    write(args.folder, Law(args.rows, args.overlap, args.noise, args.draw), args.seeds)


if __name__ == "__main__":
    main()
