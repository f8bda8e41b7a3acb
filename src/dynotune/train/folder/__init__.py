"""The run folder: what lies in it, when it is sealed, how a run ends in it."""
