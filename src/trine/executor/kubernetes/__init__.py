"""The executor ``kubernetes``: jobs on the nodes of a Kubernetes cluster, one pod per node of a gang, placed by
Binding. Imports nothing: the agent in every pod loads it."""
