"""Cut one linking problem with known truth from a file of embeddings.

The .npz holds `ids` (n opaque strings, one an object) and one array per encoder (n x d, float16, unit rows): the same
row is the same object, so any two encoders give two clouds with truth. To make the like from any texts: encode
them with two models (for example with sentence-transformers, `normalize_embeddings=True`), then
`numpy.savez("own.npz", ids=ids, minilm=a.astype("float16"), mpnet=b.astype("float16"))`.

The protocol: of `objects` objects, a share `overlap` is in both clouds; the rest is split evenly between them. Each
side is shuffled by itself and gets ids of its own; seeds are drawn from the shared objects. The same arguments give
the same files.

    python tests/data/make_sample.py tests/data/scifact.npz tests/data/sample
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def main() -> None:
    """Write source.parquet, target.parquet, seeds.csv and truth.csv into the output folder."""
    args = _arguments()
    archive = np.load(args.npz)
    total = len(archive["ids"])
    objects = min(args.objects or total, total)
    rng = np.random.default_rng(args.draw)
    chosen = rng.permutation(total)[:objects]
    shared, rest = np.split(chosen, [round(args.overlap * objects)])
    if args.seeds > len(shared):
        raise SystemExit(f"{args.seeds} seeds asked of {len(shared)} shared objects")
    half = len(rest) // 2
    source = rng.permutation(np.concatenate([shared, rest[:half]]))
    target = rng.permutation(np.concatenate([shared, rest[half:]]))
    source_ids, target_ids = _opaque("a", total, rng), _opaque("b", total, rng)
    seeds = rng.choice(shared, args.seeds, replace=False)

    args.out.mkdir(parents=True, exist_ok=True)
    _write_cloud(args.out / "source.parquet", source_ids[source], archive[args.source][source])
    _write_cloud(args.out / "target.parquet", target_ids[target], archive[args.target][target])
    _write_pairs(args.out / "seeds.csv", source_ids[seeds], target_ids[seeds])
    _write_pairs(args.out / "truth.csv", source_ids[shared], target_ids[shared])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Cut one linking problem with known truth from a file of embeddings.")
    parser.add_argument("npz", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--source", default="minilm", help="encoder of the source cloud")
    parser.add_argument("--target", default="mpnet", help="encoder of the target cloud")
    parser.add_argument("--objects", type=int, help="how many objects (default: all)")
    parser.add_argument("--overlap", type=float, default=0.3, help="share of the objects that is in both clouds")
    parser.add_argument("--seeds", type=int, default=15, help="known pairs")
    parser.add_argument("--draw", type=int, default=0, help="number of the random draw")
    return parser.parse_args()


def _opaque(prefix: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """One id per object that tells nothing of the object, nor of its id on the other side."""
    return np.array([f"{prefix}{number:06d}" for number in rng.choice(1_000_000, count, replace=False)])


def _write_cloud(path: Path, ids: np.ndarray, vectors: np.ndarray) -> None:
    flat = pa.array(vectors.astype(np.float32).ravel())
    offsets = pa.array(np.arange(len(ids) + 1, dtype=np.int32) * vectors.shape[1])
    table = pa.table({"id": pa.array(ids), "vector": pa.ListArray.from_arrays(offsets, flat)})
    # Half precision knows few values: a dictionary of them halves the file. Splitting the bytes into streams would
    # do a little better, but Spark's vectorised reader (4.1) knows no BYTE_STREAM_SPLIT. One row group, or each
    # would carry its own dictionary.
    pq.write_table(table, path, compression="zstd", use_dictionary=["vector.list.element"], row_group_size=len(ids))


def _write_pairs(path: Path, source: np.ndarray, target: np.ndarray) -> None:
    # Sorted by id, or the order would tell which rows belong together.
    with path.open("w", newline="", encoding="utf-8") as handle:
        rows = csv.writer(handle, lineterminator="\n")
        rows.writerow(["source_id", "target_id"])
        rows.writerows(sorted(zip(source.tolist(), target.tolist(), strict=True)))


if __name__ == "__main__":
    main()
