"""Spherical k-means against scikit-learn, and its edge cases."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from clouds import two_warps, unit
from veclink.kernels.kmeans import spherical_kmeans


def blobs(clusters, each, dim, noise, rng):
    centres = unit(rng.standard_normal((clusters, dim)))
    labels = np.repeat(np.arange(clusters), each)
    return unit(centres[labels] + noise * rng.standard_normal((len(labels), dim))), labels


def test_clear_clusters_are_found_as_scikit_learn_finds_them():
    points, labels = blobs(8, 60, 32, 0.08, np.random.default_rng(0))
    fits = [spherical_kmeans(points, 8, np.random.default_rng(i)) for i in range(5)]
    best = max(fits, key=lambda fit: (points * fit[0][fit[1]]).sum())
    theirs = KMeans(8, n_init=5, random_state=0).fit_predict(points)
    assert adjusted_rand_score(best[1], labels) == 1
    assert adjusted_rand_score(best[1], theirs) == 1


def test_the_objective_is_close_to_that_of_scikit_learn():
    points, _ = two_warps(1500, (24, 24), 0.1, np.random.default_rng(1))

    def loss(labels):
        sums = np.array([points[labels == c].sum(axis=0) for c in range(20)])
        return len(points) - np.linalg.norm(sums, axis=1).sum()  # sum of 1 - cosine to the mean direction

    ours = np.mean([loss(spherical_kmeans(points, 20, np.random.default_rng(i))[1]) for i in range(5)])
    theirs = np.mean([loss(KMeans(20, n_init=1, random_state=i).fit_predict(points)) for i in range(5)])
    assert ours <= 1.03 * theirs


def test_centroids_are_unit_means_of_their_rows_and_every_row_is_with_the_nearest():
    points, _ = two_warps(400, (16, 16), 0.1, np.random.default_rng(2))
    centroids, labels = spherical_kmeans(points, 10, np.random.default_rng(0), steps_max=500)
    np.testing.assert_allclose(
        centroids, unit(np.array([points[labels == c].sum(axis=0) for c in range(10)])), atol=1e-5
    )
    np.testing.assert_array_equal(labels, (points @ centroids.T).argmax(axis=1))


@pytest.mark.parametrize("clusters", [1, 3, 12])
def test_many_copies_leave_no_cluster_empty(clusters):
    points = np.repeat(unit(np.random.default_rng(3).standard_normal((3, 5))), 4, axis=0)
    centroids, labels = spherical_kmeans(points, clusters, np.random.default_rng(1))
    assert np.bincount(labels, minlength=clusters).min() >= 1
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, rtol=1e-5)


def test_same_key_same_clusters_and_another_key_another():
    points, _ = two_warps(600, (16, 16), 0.1, np.random.default_rng(4))
    first, second, other = (spherical_kmeans(points, 15, np.random.default_rng(i))[1] for i in (7, 7, 8))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


def test_more_clusters_than_rows_is_refused():
    with pytest.raises(ValueError, match=r"at most the number of rows, 3\. Got 4 instead\."):
        spherical_kmeans(unit(np.eye(3)), 4, np.random.default_rng(0))
