"""Searches: a kind of run whose units are trials of other kinds."""
