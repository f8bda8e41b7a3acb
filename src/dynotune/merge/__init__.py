"""`dynotune merge`: an adapter into its base, with proof."""
