"""The embedded demo: `run_demo` makes a tiny model learn a task, by the ordinary path."""

from dynotune.demo.run import run_demo

__all__ = ["run_demo"]
