"""The ways in which a micro-batch can be executed, and the feed that brings it to the device."""
