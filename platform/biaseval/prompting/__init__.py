"""Code that label_bias and majority_bias share to plan prompts, and that scoring uses. Pure; tokenizers are arguments.

calibration  records of the methods: the inputs of each method, and the SQL columns that it gives
lengths      tokens of texts, counted for the whole text or per piece
parts        prompts that are scored together
labels       the separator before a label, and labels that share their tokens
matching     the label that a generated text means
task_files   Super-NaturalInstructions task files
"""
