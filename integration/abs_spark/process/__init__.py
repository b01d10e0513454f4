"""A Python process of Spark: which interpreter it is, its memory, its log lines and its errors."""
