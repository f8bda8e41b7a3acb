"""Changes carried out on the audited files, comments and layout kept: only what was asked for, whole or not at all."""
