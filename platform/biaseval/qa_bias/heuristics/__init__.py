"""Shortcuts of questions as records: the built-in ones, those of users, and what computes their values."""
