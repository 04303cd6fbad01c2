"""Whole runs, readable top to bottom: which stages, in which order, over which tables."""
