"""Learning from the step rates of real jobs: throughputs of models and pairs, slowdowns of single GPUs, drift.

``observations`` is the entry. ``rates`` and ``chip_slowdowns`` hold the estimators, ``evidence`` the robust statistics
below them, ``observations_json`` the text form. Pure and deterministic: times are passed in, no file is touched.
"""
