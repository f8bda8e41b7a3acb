"""Running rules over what was read: which ones, what they say, what somebody has already answered for."""
