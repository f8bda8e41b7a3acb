"""What is known of the audited things, whoever read it from wherever. Rules see these and nothing else."""
