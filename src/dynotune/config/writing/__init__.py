"""A configuration as YAML, as a schema for editors, as reference pages."""
