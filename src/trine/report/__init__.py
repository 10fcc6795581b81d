"""Reports: the files and pages of a run and of a comparison. Reads ``trine.core`` results; schedules nothing."""
