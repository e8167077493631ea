"""A kind that lives outside the package, in two files, and what everything makes of it."""
