"""A step under the profiler, as evidence: events, their modules, what ran."""
