"""The configuration keys: one model a topic, a docstring under every field."""
