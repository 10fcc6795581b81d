"""Gavel (OSDI'20): its experiments in the order of the page, and what a reader must know about them."""

from __future__ import annotations

from trine.reproduce.experiment import Experiment, Paper
from trine.reproduce.gavel_inputs import FIGURES, GavelData
from trine.reproduce.gavel_mechanism import Estimator, Ideal, Quirks, SolveTime
from trine.reproduce.gavel_objectives import Cost, Entities, Priorities, Static
from trine.reproduce.gavel_sweeps import FullContinuous, LoadSweep, Multiple
from trine.reproduce.gavel_tables import TABLES, Bill

EXPERIMENTS: tuple[Experiment[GavelData], ...] = (
    *TABLES,
    Bill(),
    FullContinuous(),
    Multiple(),
    LoadSweep(),
    Static(),
    Priorities(),
    Cost(),
    Entities(),
    SolveTime(),
    Estimator(),
    Quirks(),
    Ideal(),
)
NOTES = (
    "'as published' runs with every quirk of the authors' code (compat=authors), 'trine' without any.",
    "Only figures with a band on both sides count. Where a linear program has many optima, another solver gives other "
    "completion times: such runs are held to 3 % of the average, max-min-fairness and makespan to 0.3 %. Policies that "
    "leave a solver no choice are compared job by job.",
    "Published figures marked (recalled) are quoted from memory of the paper and were not checked against it.",
    "fifo, not aware: the authors' code always takes the last free type by name, which here is the fastest one; "
    "without that quirk types are drawn at random as meant, so the two are not held against each other.",
    "Gangs with Poisson arrivals, priorities and deadlines: the paper shows curves, and of its numbers only 'up to 3.5 "
    "times' is at hand, so directions are shown and the hours are ours alone.",
    "The bill of the physical traces counts the GPUs of every job at the published spot prices; it is judged where the "
    "average JCT lies within tolerance.",
    "The published makespan of fifo (182.3 h) came neither from the public version of the authors' code, which gives "
    "660.8 h, nor from fifo that knows speeds.",
    "Ideal carries out the shares as a fluid: a job is spread over all types it has a share of, and what is left stays "
    "idle, so at low load rounds, which leave no GPU idle that a job can use, are faster.",
)
PAPER = Paper("Gavel (OSDI'20)", FIGURES, GavelData.find, lambda _: EXPERIMENTS, lambda _: NOTES)
