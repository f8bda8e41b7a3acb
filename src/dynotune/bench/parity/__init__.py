"""Whether two arms make the same updates: probes take one step of each arm, and the gate compares what came of it."""
