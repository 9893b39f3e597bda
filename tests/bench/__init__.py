"""Measures the scorer against what others do: same weights, texts and machine, all in one run.

texts       scenarios: prompts of real or generated tasks, with few or many demonstrations and labels
shapes      Llamas of random weights, from tiny to 7B, and their tokenizer
methods     the other ways to score the same labels
memory      the highest memory use while something runs
flops       the work that scoring needs, and the rate of a plain matrix product
measure     runs every method on every scenario
results     from measurements to records and a Markdown table

Beside it:

reading     the extractive reader against the published code's settings
start       how long commands take that compute nothing
training    training of readers against Hugging Face's Trainer
written     prints a report and keeps its records
"""
