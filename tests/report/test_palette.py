"""Colours of the pages: any two lines of a plot can be told apart, with the common kinds of colour blindness, too."""

from __future__ import annotations

import itertools
import re
from colorsys import rgb_to_hls
from importlib.resources import files

import numpy as np
import pytest

from trine.report.figures import LINE_COLOURS
from trine.report.occupancy import JOB_COLOURS

# Machado, Oliveira and Fernandes 2009: full protanopia and deuteranopia, on linear RGB.
SIGHT = {
    "full": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
LEAST_DISTANCE = 12.0
"""In CIELAB; about 2 can just be seen side by side. The closest two of Okabe and Ito's seven colours are 17 apart."""


def palettes(key: str) -> list[list[str]]:
    """The light and the dark palette of this key in the page's script."""
    script = files("trine.report").joinpath("page.js").read_text(encoding="utf-8")
    return [re.findall(r"#[0-9a-f]{6}", found) for found in re.findall(rf"\b{key}: \[([^\]]*)\]", script)]


def lab(colour: str, sight: str) -> np.ndarray:
    """CIELAB (D65) of a colour as seen with this sight."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(SIGHT[sight] @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ seen / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize(("key", "number"), [("c", LINE_COLOURS), ("m", JOB_COLOURS)])
def test_lines_and_jobs_can_be_told_apart(key: str, number: int, theme: int, sight: str) -> None:
    colours = palettes(key)[theme]
    assert len(colours) == number
    close = {
        (a, b): round(float(np.linalg.norm(lab(a, sight) - lab(b, sight))), 1)
        for a, b in itertools.combinations(colours, 2)
    }
    assert min(close.values()) >= LEAST_DISTANCE, sorted(close.items(), key=lambda item: item[1])[:4]


@pytest.mark.parametrize("theme", [0, 1])
def test_jobs_of_a_gantt_chart_have_one_blue(theme: int) -> None:
    hues = {
        colour: 360 * rgb_to_hls(*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)))[0]
        for colour in palettes("m")[theme]
    }
    assert len([hue for hue in hues.values() if 180 <= hue <= 250]) == 1, hues


@pytest.mark.parametrize("theme", [0, 1])
def test_slower_chips_are_further_from_the_page(theme: int) -> None:
    marks = [lab(colour, "full")[0] for colour in palettes("h")[theme]]
    assert marks == sorted(marks, reverse=theme == 0)
