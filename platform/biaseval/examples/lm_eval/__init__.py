"""Tasks of lm-evaluation-harness over local files: their documents, and prompts that are the harness's to the byte."""
