"""A result for readers: what is shown of it, as tables, in the terminal and as Markdown."""
