"""Projects of the corpus are read, and nothing of them is run: their own tests neither."""

collect_ignore = ["corpus"]
