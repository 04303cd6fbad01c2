"""Pure functions on arrays: no Spark, Arrow, files or logging."""
