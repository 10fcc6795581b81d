from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trine.core.errors import InputError, TrineError
from trine.inputs.yaml_reader import Mapping, parse_mapping, read_mapping

EXAMPLE = """\
name: lab
size: 3
rate: 1e3
on: yes
mode: fast
inner:
  deep: 1.5
items: [a, 'b', 3]
empty:
"""


def example() -> Mapping:
    return parse_mapping(EXAMPLE, "x.yaml")


def message(read: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        read()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_accessors_give_typed_values() -> None:
    top = example()
    assert top.text("name") == "lab"
    assert top.integer("size", minimum=1) == 3
    assert top.number("rate") == 1000.0
    assert top.flag("on") is True
    assert top.choice("mode", ("fast", "slow")) == "fast"
    assert top.mapping("inner").number("deep") == 1.5
    assert top.texts("items") == ("a", "b", "3")
    assert [v.plain() for v in top.list("items")] == ["a", "b", 3]
    assert top.text("empty", "default") == "default"
    top.finish()


def test_defaults_stand_for_absent_keys() -> None:
    top = example()
    assert top.text("a", "x") == "x"
    assert top.number("b", None) is None
    assert top.integer("c", 4) == 4
    assert top.flag("d", False) is False
    assert top.choice("e", ("u", "v"), "u") == "u"
    assert top.mapping("f", None) is None
    assert top.list("g", None) is None
    assert top.texts("h", ()) == ()


@pytest.mark.parametrize(
    ("read", "line", "field", "expected"),
    [
        (lambda t: t.integer("name"), 1, "name", "a whole number"),
        (lambda t: t.integer("size", minimum=4), 2, "size", "at least 4"),
        (lambda t: t.integer("size", minimum=4, maximum=9), 2, "size", "from 4 to 9"),
        (lambda t: t.integer("rate"), 3, "rate", "a whole number"),
        (lambda t: t.number("size", above=3), 2, "size", "greater than 3"),
        (lambda t: t.text("on"), 4, "on", "text"),
        (lambda t: t.text("items"), 8, "items", "text"),
        (lambda t: t.flag("size"), 2, "size", "true or false"),
        (lambda t: t.choice("mode", ("fastest", "slow"), what="mode"), 5, "mode", "did you mean 'fastest'?"),
        (lambda t: t.mapping("items"), 8, "items", "a mapping"),
        (lambda t: t.list("inner"), 7, "inner", "a list"),
        (lambda t: t.mapping("inner").integer("deep"), 7, "inner.deep", "a whole number"),
        (lambda t: t.list("items")[2].flag(), 8, "items[2]", "true or false"),
        (lambda t: t.text("empty"), 9, "empty", "a value"),
        (lambda t: t.text("absent"), 1, "absent", "a value"),
    ],
)
def test_wrong_values_name_line_key_and_expectation(
    read: Callable[[Mapping], object], line: int, field: str, expected: str
) -> None:
    text = message(lambda: read(example()))
    assert text.startswith(f"x.yaml:{line}: {field}: ")
    assert expected in text


@pytest.mark.parametrize("written", [".inf", ".nan", "1e999", "0x10", "1:30", "'3'", "--3", "true", "[1]", "1.2.3"])
def test_only_finite_decimal_numbers_are_numbers(written: str) -> None:
    assert "a number" in message(lambda: parse_mapping(f"a: {written}", "f").number("a"))


def test_unknown_keys_name_the_nearest() -> None:
    top = parse_mapping("nodes: 3\ngpsu: 4\n", "x.yaml")
    top.integer("nodes"), top.integer("gpus", 1)
    assert message(top.finish).startswith("x.yaml:2: unknown key 'gpsu' (did you mean 'gpus'?)")


def test_unknown_keys_below_are_found_from_the_top() -> None:
    top = parse_mapping("inner: {colour: red}\nlist:\n - {b: 1}\n", "x.yaml")
    assert top.mapping("inner").text("color", "") == ""
    assert top.list("list")[0].mapping().integer("b") == 1
    assert message(top.finish) == (
        "x.yaml:1: inner: unknown key 'colour' (did you mean 'color'?); expected one of color"
    )


def test_plain_reads_everything() -> None:
    top = example()
    plain = top.plain()
    assert plain["inner"] == {"deep": 1.5}
    assert plain["items"] == ["a", "b", 3]
    assert plain["empty"] is None
    assert plain["on"] is True
    top.finish()


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "found twice, first on line 1"),
        ("a: [1, 2\nb: 3\n", 2, "not valid YAML"),
        ("a: 1\n\tb: 2\n", 2, "not valid YAML"),
        ("a: 1\n---\nb: 2\n", 2, "not valid YAML"),
        ("a: *nothing\n", 1, "not valid YAML"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", 3, "merge key"),
        ("- 1\n- 2\n", 1, "a list"),
        ("just text\n", 1, "a mapping"),
        ("? [1, 2]\n: 3\n", 1, "not text"),
        ("a: &a [*a]\n", 1, "contains itself"),
        ("a: \x01\n", 1, "not allowed"),
        ("a: " + "[" * 5000 + "]" * 5000, 1, "nested too deeply"),
        ("a: &a 1\nb: [" + "*a," * 2000 + "]", 2, "aliases"),
    ],
)
def test_bad_documents_are_refused_with_their_line(text: str, line: int, part: str) -> None:
    found = message(lambda: parse_mapping(text, "x.yaml"))
    assert found.startswith(f"x.yaml:{line}: ")
    assert part in found


def bomb(levels: int, width: int) -> str:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize("text", [bomb(30, 9), bomb(900, 1)], ids=["wide", "deep"])
def test_alias_bombs_are_refused(text: str) -> None:
    assert "alias" in message(lambda: parse_mapping(text, "x.yaml"))


def test_modest_aliases_work() -> None:
    assert parse_mapping("a: &a [1, 2]\nb: *a\n", "x").plain() == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize("content", [b"", b"  \n# only a comment\n", b"~\n", b"\xef\xbb\xbf"])
def test_empty_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty.yaml"
    path.write_bytes(content)
    assert str(path) in message(lambda: read_mapping(path, "a preset"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "no such file; expected a preset" in message(lambda: read_mapping(tmp_path / "absent.yaml", "a preset"))
    assert "directory" in message(lambda: read_mapping(tmp_path))
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"a: 1\nname: caf\xe9\n")
    assert f"{latin}:2: byte 0xe9 is not UTF-8" in message(lambda: read_mapping(latin))
    cut = tmp_path / "cut.yaml.gz"
    cut.write_bytes(gzip.compress(b"a: 1\n" * 100)[:-12])
    assert "gzip" in message(lambda: read_mapping(cut))


def test_too_large_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "zeros.yaml.gz"
    path.write_bytes(gzip.compress(b"0" * 65_000_000, 1))
    assert "more than 64 MB" in message(lambda: read_mapping(path))


def test_byte_order_mark_and_windows_lines(tmp_path: Path) -> None:
    path = tmp_path / "windows.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: two\r\n")
    assert read_mapping(path).plain() == {"a": 1, "b": "two"}


@given(st.text(max_size=60) | st.text(alphabet="a:{}[]&*!|>-'\" \n\t#%@,0", max_size=40))
def test_any_text_is_read_or_refused_in_one_sentence(text: str) -> None:
    try:
        parse_mapping(text, "any").plain()
    except TrineError as error:
        assert "; expected" in str(error)


@pytest.mark.parametrize(
    "value", ["!secret abc", "!!python/object:os.system x", "!!str 3", "!include other.yaml", "!x [1]"]
)
def test_a_tag_is_refused_and_not_passed_over(value: str) -> None:
    """The value would be read as something else than the file says."""
    with pytest.raises(InputError, match=r"^jobs\.yaml:2: found the tag '!.*'; expected the value alone") as refused:
        parse_mapping(f"first: 1\nsecond: {value}\n", "jobs.yaml").plain()
    assert len(str(refused.value).splitlines()) == 1


def test_no_tag_is_none() -> None:
    assert parse_mapping("a: 'x'\nb: [1, {c: null}]\n", "f").plain() == {"a": "x", "b": [1, {"c": None}]}
