"""What a data set's name means: files, shards, splits, mixtures, the hub."""
