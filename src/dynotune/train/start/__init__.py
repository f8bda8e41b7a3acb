"""From a configuration to a run that stands: what it needs is opened, made and decided, in order."""
