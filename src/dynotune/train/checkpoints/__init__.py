"""Checkpoints: written whole with a checksum of every byte, found, checked, restored and removed."""
