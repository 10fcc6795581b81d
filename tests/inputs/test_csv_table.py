"""The CSV table: typed cells, and errors that name file, line and column."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.core.errors import InputError, TrineError
from trine.inputs.csv_table import CELLS, CsvTable, Row, table_lines

TEXT = """\
# measured in May

model,gpus,rate,note
resnet, 4 ,1.5,
"two
lines",x,-1,"a, b"
"""


def table(text: str = TEXT) -> CsvTable:
    return CsvTable("t.csv", text, comments=True)


def refusal(read: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        read()
    return str(caught.value)


def test_cells_have_types_and_lines_count_from_the_first_of_a_row() -> None:
    first, second = table()
    assert (first.text("model"), first.integer("gpus"), first.number("rate")) == ("resnet", 4, 1.5)
    assert (first.given("note"), second.text("note"), second.text("absent")) == (False, "a, b", "")
    assert (table().where, first.where, second.where) == ("t.csv:3", "t.csv:4", "t.csv:5")
    assert first.number_or_none("note") is None


@pytest.mark.parametrize(
    ("read", "sentence"),
    [
        (lambda row: row.integer("gpus"), "gpus: found 'x'; expected a whole number of at least 0"),
        (lambda row: row.integer("rate", 1, 9), "rate: found '-1'; expected a whole number from 1 to 9"),
        (lambda row: row.integer("gpus", expected="GPUs"), "gpus: found 'x'; expected GPUs"),
        (lambda row: row.number("gpus"), "gpus: found 'x'; expected a number"),
        (lambda row: row.number("rate"), "rate: found '-1'; expected a number of at least 0"),
        (lambda row: row.number("rate", -9, above=-1, expected="more"), "rate: found '-1'; expected more"),
        (lambda row: row.number("rate", -9, maximum=-2, expected="less"), "rate: found '-1'; expected less"),
        (lambda row: row.filled("absent"), "absent: the cell is empty; expected a value"),
        (lambda row: row.flag("gpus", default=True), "gpus: found 'x'; expected true or false"),
        (lambda row: row.timestamp("gpus"), "gpus: found 'x'; expected a date and time such as 2017-10-09 07:01:55"),
    ],
)
def test_a_wrong_cell_names_line_column_and_expectation(read: Callable[[Row], object], sentence: str) -> None:
    row = list(table())[1]
    assert refusal(lambda: read(row)) == f"t.csv:5: {sentence}"


@pytest.mark.parametrize("cell", ["nan", "inf", "-inf", "1_000", "0x10", "²", ""])
def test_only_finite_decimal_numbers_are_numbers(cell: str) -> None:
    (row,) = CsvTable("t.csv", f"a,b\n{cell},1\n")
    assert refusal(lambda: row.number("a", -math.inf)).startswith("t.csv:2: a: ")
    assert refusal(lambda: row.integer("a")).startswith("t.csv:2: a: ")


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ("model,gpu", "t.csv:1: unknown column 'gpu' (did you mean 'gpus'?); expected one of gpus, model, note"),
        ("model,gpus,model", "t.csv:1: model: the column appears twice; expected every column once"),
        ("gpus,note", "t.csv:1: model: no such column; expected a table"),
    ],
)
def test_a_wrong_header_is_named(header: str, sentence: str) -> None:
    opened = CsvTable("t.csv", f"{header}\n")
    assert refusal(lambda: opened.check_columns(("model", "gpus"), ("note",), "a table")) == sentence


def test_a_line_of_another_width_is_refused_and_blank_lines_are_not() -> None:
    assert len(list(CsvTable("t.csv", "a,b\n\n , \n1,2\n"))) == 1
    assert refusal(lambda: list(CsvTable("t.csv", "a,b\n1\n"))) == (
        "t.csv:2: 1 columns; expected 2 columns, as in the header"
    )
    assert refusal(lambda: list(CsvTable("t.csv", "a,b\n1,2,3\n", ragged=CELLS))) == (
        "t.csv:2: 3 cells; expected 2, as in the first line"
    )


def test_of_columns_with_the_same_name_the_first_counts() -> None:
    (row,) = CsvTable("t.csv", "a,a\n1,2\n")
    assert row.text("a") == "1"


def test_quotes_that_are_not_closed_are_refused_but_are_letters_between_tabs() -> None:
    assert "t.csv:2: a line that cannot be split" in refusal(lambda: list(CsvTable("t.csv", 'a,b\n"1,2\n3,4\n')))
    assert list(table_lines("t.tsv", 'a\tsay "hi\n', delimiter="\t")) == [(1, ["a", 'say "hi'])]


@given(st.text(max_size=60) | st.text(alphabet='a,"\n\r\t#1', max_size=40))
def test_any_text_is_read_or_refused_in_one_sentence(text: str) -> None:
    try:
        opened = CsvTable("any", text, comments=True)
        assert all(len(row.cells) == len(opened.names) for row in opened)
    except TrineError as error:
        assert "; expected" in str(error)
