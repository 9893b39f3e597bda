"""Majority-label bias (P2, Gupta et al. 2023): data, label proportions, prompts and their plan. Pure: no Ray, no torch.

data         files -> examples with fields and a label
proportions  grids of label shares -> settings with counts of demonstrations
prompts      presets and item templates -> texts
plan         all of it -> settings, contexts and prompts, one setting at a time
"""
