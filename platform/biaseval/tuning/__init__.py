"""Searching: which points are tried next, and which of them are stopped on the way. Pure: nothing runs here."""
