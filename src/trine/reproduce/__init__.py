"""Published experiments run again: published, reference and our figures side by side.

A paper is data and a list of experiments; the rest is common:

- ``experiment``: the runner. It collects what all experiments want simulated, runs each different scenario once in
  processes, and hands the outcomes back to be judged.
- ``paired_comparison``: contenders x settings x seeds, paired differences with intervals, and bands for them.
- ``checks``: one figure beside the published and the reference value, and its band.
- ``reproduction``: plots, tables, the last sentence, and the page.

A new paper ``NAME`` takes three things:

1. ``NAME.yaml``: contenders (policy, placement, settings), published and reference figures, each block with its source.
2. ``NAME.py``: ``PAPER = Paper(title, NAME.yaml, inputs, experiments, notes)``. An experiment says what to simulate
   (``runs``) and what came out (``judge``). Contenders in a setting are compared by ``SideBySide``, with tables, paired
   differences and the bands of the YAML file; a setting is a scenario for each seed, which may be a trace, a workload
   or a ``world`` directory. Only an experiment that shows something else is a class of its own.
3. An entry in ``PAPERS`` of ``cli/reproduce.py``.
"""
