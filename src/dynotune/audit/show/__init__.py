"""An audit's result for people and programs: a screen, JSON, SARIF, Markdown, a page. Text of others is escaped here."""
