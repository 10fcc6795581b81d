"""Any table by its columns, a window of a trace and its load: what is read, what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from trine.cli.main import app
from trine.core.errors import InputError
from trine.core.job import Job
from trine.trace import ImportOptions, load

TABLE = "when,run_min,share,who,kind\n2020-01-01T00:10,10,150,ann,bert\n2020-01-01 00:00:00,0.5,100,bob,\n"
COLUMNS = "submit=when,duration=run_min:min,gpus=share:percent,user=who,model=kind"
SECONDS = "t,s,e,n,id\n1000,1010,1100,1,a\n1300,1400,,2,b\n1500,,,2,c\n1900,1900,2000,4,d\n"


def read(folder: Path, text: str, columns: str, **options: str | float) -> list[Job]:
    path = folder / "table"
    path.write_text(text)
    given = {"columns": columns} | {name: str(value) for name, value in options.items()}
    return load(path, options=ImportOptions.parse(given)).jobs


@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
def test_any_table_is_read_with_its_units(tmp_path: Path, delimiter: str) -> None:
    jobs = read(tmp_path, TABLE.replace(",", delimiter), COLUMNS)
    assert [(j.id, j.submit_s, j.ideal_s, j.gpus, j.user, j.model) for j in jobs] == [
        ("1", 0, 30, 1, "bob", ""),
        ("0", 600, 600, 2, "ann", "bert"),
    ]


def test_a_run_between_start_and_end_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_text(SECONDS)
    options = ImportOptions.parse({"columns": "id=id,submit=t,start=s,end=e,gpus=n"})
    trace = load(path, options=options)
    assert [(j.id, j.submit_s, j.ideal_s) for j in trace.jobs] == [("a", 1000, 90), ("d", 1900, 100)]
    assert trace.summary.skipped == {"still-running": 1, "never-started": 1}


def test_a_colon_may_belong_to_the_name_of_a_column(tmp_path: Path) -> None:
    text = "t:s,run:h,n\n1,2,1\n"
    assert [(j.submit_s, j.ideal_s) for j in read(tmp_path, text, "submit=t:s,duration=run:h,gpus=n")] == [(1, 2)]
    assert read(tmp_path, text, "submit=t:s:h,duration=run:h:min,gpus=n")[0].ideal_s == 120


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ("submit=when,duration=run_min", "--columns: no gpus; expected gpus=COLUMN"),
        ("submit=when,gpus=share", "--columns: no run time; expected either duration=COLUMN, or start=COLUMN and end="),
        ("submit=when,gpus=share,start=when", "--columns: start; expected either duration="),
        ("submit=when,gpus=share,duration=run_min,end=when", "--columns: duration and end; expected either"),
        ("submit=when,submit=when,gpus=share,duration=run_min", "--columns: submit twice; expected every field once"),
        ("submit,gpus=share", "--columns: 'submit'; expected FIELD=COLUMN or FIELD=COLUMN:UNIT"),
        ("submit=when,gpu=share,duration=run_min", "unknown field 'gpu' (did you mean 'gpus'?)"),
        ("submit=when,gpus=share,duration=run", "table:1: no column 'run' (did you mean 'run_min'?); expected columns"),
        (
            "submit=when,gpus=share,duration=run_min:week",
            "--columns: duration: 'run_min:week'; expected a column of",
        ),
        ("submit=when,gpus=share,duration=run_min,user=who:s", "expected a column, without a unit"),
        ("submit=when,gpus=who,duration=run_min", "table:2: who: found 'ann'; expected a number"),
        ("submit=who,gpus=share,duration=run_min", "table:2: who: found 'ann'; expected a date and time"),
        ("submit=when:min,gpus=share,duration=run_min", "table:2: when: found '2020-01-01T00:10'; expected a number"),
    ],
)
def test_columns_that_do_not_work_are_told(tmp_path: Path, columns: str, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, TABLE, columns)
    assert complaint in str(caught.value)


OWN = "job_id,submit_s,gpus,duration_s,deadline_s\na,100,1,5,150\nb,200,1,5,\nc,400,1,5,900\nd,800,1,5,\n"


def own(folder: Path, **options: str | float) -> list[tuple[str, float, float | None]]:
    path = folder / "trace.csv"
    path.write_text(OWN)
    chosen = ImportOptions.parse({name: str(value) for name, value in options.items()})
    return [(j.id, j.submit_s, j.deadline_s) for j in load(path, options=chosen).jobs]


def test_a_window_includes_its_beginning_excludes_its_end_and_starts_the_clock(tmp_path: Path) -> None:
    assert own(tmp_path, since="200", until="800") == [("b", 0, None), ("c", 200, 700)]
    assert own(tmp_path, until="400") == [("a", 100, 150), ("b", 200, None)]
    assert own(tmp_path, since="201.5") == [("c", 198.5, 698.5), ("d", 598.5, None)]


def test_load_divides_the_gaps_and_keeps_the_first_job_and_the_slack_of_deadlines(tmp_path: Path) -> None:
    assert own(tmp_path, scale_load=2) == [("a", 100, 150), ("b", 150, None), ("c", 250, 750), ("d", 450, None)]
    assert own(tmp_path, scale_load=0.5)[-1] == ("d", 1500, None)
    assert own(tmp_path, since="200", scale_load=4) == [("b", 0, None), ("c", 50, 550), ("d", 150, None)]


def test_what_a_window_leaves_out_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(OWN)
    summary = load(path, options=ImportOptions(since="200", until="800", scale_load=3)).summary
    assert (summary.rows, summary.jobs, summary.skipped) == (4, 2, {"outside-window": 2})
    window = "Only jobs submitted at 200 or later and before 800; times count from the beginning of that window."
    assert window in summary.sentences
    assert "Arrivals scaled: the gaps between submissions are divided by 3." in summary.sentences


def test_dates_cut_traces_that_have_dates(tmp_path: Path) -> None:
    for since in ("2020-01-01T00:05", "2020-01-01 01:05+01:00"):
        assert [(j.id, j.submit_s) for j in read(tmp_path, TABLE, COLUMNS, since=since)] == [("0", 300)]
    assert [j.id for j in read(tmp_path, TABLE, COLUMNS, since="300")] == ["0"]
    assert [j.submit_s for j in read(tmp_path, TABLE, COLUMNS, since="2001-01-01")] == [0, 600]
    old = read(tmp_path, TABLE.replace("2020", "1994"), COLUMNS, since="1994-01-01T00:05")
    assert [(j.id, j.submit_s) for j in old] == [("0", 300)]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            {"since": "2020-01-01"},
            "--from: the date 2020-01-01, and this trace counts seconds; expected seconds",
        ),
        ({"until": "soon"}, "--to: 'soon'; expected seconds, or a date such as"),
        ({"since": "-1"}, "--from: '-1'; expected seconds of at least 0"),
        ({"since": "300", "until": "200"}, "--from: '300', not before --to '200'"),
        (
            {"since": "900"},
            "expected jobs submitted in the window; this trace has some from 100 to 800",
        ),
        ({"until": "50"}, "none of 4 rows is a job (4 outside-window)"),
        ({"scale_load": "0"}, "scale_load: 0; expected a positive, finite number"),
    ],
)
def test_windows_and_loads_that_do_not_work_are_told(tmp_path: Path, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        own(tmp_path, **options)
    assert complaint in str(caught.value)


def test_a_window_before_the_first_date_says_when_the_trace_was(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, TABLE, COLUMNS, until="2019-12-31")
    assert "this trace has some from 2020-01-01 00:00:00 to 2020-01-01 00:10:00" in str(caught.value)


def run(*words: str | Path) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.exception
    return result.stdout


def test_the_commands_take_the_same_options(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    chosen = ("--columns", COLUMNS, "--from", "2020-01-01", "--to", "2020-01-01T00:05", "--scale-load", "2")
    assert '"jobs": 1' in run("trace", "info", path, "--json", *chosen)
    assert ",bob," in run("trace", "convert", path, "-", *chosen).splitlines()[1]
    assert '"jobs": 1' in run("sim", "run", "--trace", path, "--cluster", "1x2", "--json", *chosen)
    assert "fifo" in run("sim", "compare", "--trace", path, "--cluster", "1x2", "--policies", "fifo", *chosen)
    as_settings = ("trace.since=300", f"trace.columns={COLUMNS}")
    words = [word for setting in as_settings for word in ("--set", setting)]
    assert '"jobs": 1' in run("sim", "run", "--trace", path, "--cluster", "1x2", "--json", *words)


def test_a_preset_may_say_how_its_trace_is_read(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(TABLE)
    preset = tmp_path / "mine.yaml"
    preset.write_text(
        f"title: mine\ntrace: {tmp_path / 'table.csv'}\ncluster: 1x2\nsettings:\n"
        "  trace:\n    columns: [submit=when, duration=run_min:min, gpus=share:percent]\n    until: 2020-01-01T00:05\n"
    )
    assert '"jobs": 1' in run("sim", "run", "--preset", preset, "--json")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--workload", "philly", "--scale-load", "2"), "--workload: trace.scale_load: a part or a scale of a trace"),
        (("--trace", "t", "--columns", COLUMNS, "--format", "pal"), "--columns: beside --format pal; expected one of"),
        (
            ("--trace", "t", "--from", "1", "--set", "trace.since=2"),
            "trace.since: since beside --from; expected one",
        ),
    ],
)
def test_combinations_that_contradict_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t").write_text(TABLE)
    result = CliRunner().invoke(app, ["sim", "run", "--cluster", "1x2", *words])
    assert isinstance(result.exception, InputError) and complaint in str(result.exception)


def test_info_shows_when_jobs_were_submitted_so_that_a_window_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    whole = run("trace", "info", path, "--columns", COLUMNS)
    assert "submitted       2020-01-01 00:00:00 to 2020-01-01 00:10:00" in whole
    empty = run("trace", "info", path, "--columns", COLUMNS, "--from", "2021-01-01")
    assert "submitted       2020-01-01 00:00:00 to 2020-01-01 00:10:00" in empty
    assert "duration_p50_s  no jobs" in empty
