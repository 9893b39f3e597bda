"""What the plans of prompts (label_bias, majority_bias) share, and scoring with them. Pure; tokenizers come as objects.

calibration  records of the methods: what their inputs are, and how SQL takes their means
lengths      tokens of texts, counted whole or over their pieces
parts        prompts that are scored together
labels       what stands before a label, and labels that a tokenizer does not tell apart
matching     what a generated text says as a label
task_files   Super-NaturalInstructions task files
"""
