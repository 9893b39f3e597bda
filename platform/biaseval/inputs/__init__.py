"""Read the user's examples from files, sample them, and put them into prompts, as text or as turns of a chat."""
