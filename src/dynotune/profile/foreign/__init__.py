"""Profiles of scripts that are not ours and stay as they are: a hook in their processes, optimizer steps as the clock."""
