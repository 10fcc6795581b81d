"""World directories (``--world``): a cluster, its chips, links and jobs in three files; ``load`` puts them together.

``cluster.json`` holds bandwidths, shape and time settings, ``gpus.csv`` the GPUs, ``jobs.csv`` the jobs; tables may be
gzip'ed. docs/worlds.md describes the columns.
"""
