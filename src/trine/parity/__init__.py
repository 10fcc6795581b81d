"""What published simulators do, for comparison with their results job by job. Nothing here is used by default."""
