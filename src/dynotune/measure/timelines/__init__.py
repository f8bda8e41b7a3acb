"""A traced step as lines of time, each instant of one class of work."""
