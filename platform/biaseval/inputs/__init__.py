"""Examples of the user's own: read from files, drawn, and put into prompts, as text or as the turns of a chat."""
