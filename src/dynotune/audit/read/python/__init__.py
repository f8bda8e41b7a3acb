"""Python files: what they say, and the training jobs that they make. Read only; nothing of them is ever executed."""

from dynotune.audit.read.python.jobs import jobs_of
from dynotune.audit.read.python.script import read_script
from dynotune.audit.read.python.source import decoded, notes

__all__ = ["decoded", "jobs_of", "notes", "read_script"]
