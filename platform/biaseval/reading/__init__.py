"""Answers questions about contexts with extractive and generative models: torch and transformers only."""
