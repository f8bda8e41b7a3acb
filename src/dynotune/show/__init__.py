"""How figures look, whatever they are of: tables, the terminal, Markdown, pages of HTML, pictures."""
