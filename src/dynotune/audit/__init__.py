"""What is wrong or slow in an environment, configurations, data, scripts and runs, with evidence. Nothing audited is run."""
