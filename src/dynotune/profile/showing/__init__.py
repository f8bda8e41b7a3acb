"""A profile for readers: in words, on a screen, as Markdown, a page, traces for their viewers."""
