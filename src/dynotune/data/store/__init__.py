"""The token store: a data set's tokens on disk, taken again while nothing that made them has changed."""
