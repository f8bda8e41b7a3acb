"""`dynotune prepare`: the token store filled, rows shown, rows exported for other trainers."""
