"""What is told of a run while it goes on: rows, trackers, the line on the screen, warnings."""
