"""Spark plumbing: DataFrames and plain values in, DataFrames out. No sessions, no table names, no other stage."""
