"""The executor ``slurm``: jobs on the nodes of a Slurm cluster, one batch job per lease, by Slurm's command line.
Imports nothing: the leader of every attempt loads it."""
