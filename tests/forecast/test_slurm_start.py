from trine.forecast.slurm_start import slurm_starts


def test_jobs_are_planned_in_order_and_small_ones_fill_gaps() -> None:
    # 4 of 4 GPUs run until 100; the first waits for all, the second fits beside nothing, the third is short enough.
    assert slurm_starts(0.0, 0, [(100.0, 2), (60.0, 2)], [(4, 50.0), (2, 40.0), (2, 60.0)]) == [100.0, 60.0, 150.0]


def test_what_never_fits_has_no_start() -> None:
    assert slurm_starts(0.0, 2, [(10.0, 2)], [(8, 5.0), (1, 5.0)]) == [float("inf"), 0.0]
