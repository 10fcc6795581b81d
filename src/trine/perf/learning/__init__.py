"""Learning from the step rates of real jobs: throughputs of models and pairs, slowdowns of single GPUs, drift.

``observations`` is the entry. ``rates`` and ``chips`` hold the estimators, ``evidence`` the robust statistics below
them, ``store`` the text form. Pure and deterministic: times are passed in, nothing is read or written.
"""
