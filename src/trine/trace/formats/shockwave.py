"""Shockwave's traces: Gavel's 10 columns with a mode and a duration."""

from __future__ import annotations

from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout
from trine.trace.formats.gavel import TEN, gavel_draft


class Shockwave(Format):
    name = "shockwave"
    title = "Shockwave trace"
    source = "github.com/uw-mad-dash/shockwave (MIT)"
    units = "as gavel, and `duration_s` seconds for all steps; `mode` (how the batch size adapts) is not used"
    layouts = (Layout((*TEN[:7], "mode", *TEN[7:9], "duration_s", TEN[9])),)
    examples = (
        "LM (batch size 10)\tpython3 main.py\tlm\t--steps\t1\t134583\t1\tgns\t1\t-1.000000\t1418\t0\n"
        "ResNet-18 (batch size 32)\tpython3 main.py\tcifar10\t--num_steps\t1\t143450\t2\taccordion\t1\t-1\t3338\t55\n",
    )
    tab_separated = True
    has_header = False
    identity = "none"

    def draft(self, row: Row) -> Draft:
        draft = gavel_draft(row)
        draft.duration_s = row.number("duration_s")
        return draft
