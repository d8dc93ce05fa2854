"""Text for people, and the numbers of a recording."""

import pytest

from remoteprof.cli.text import parse_duration, printable, safe_file_name
from remoteprof.stats import duration_text, merge, summary


@pytest.mark.parametrize(
    "text, ns",
    [
        ("500ms", 500_000_000),
        ("10s", 10_000_000_000),
        ("2m", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("10", 10_000_000_000),
        ("0.5", 500_000_000),
        (".5s", 500_000_000),
        ("20us", 20_000),
    ],
)
def test_durations(text, ns):
    assert parse_duration(text) == ns


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "-1", "1d", "1 s", "s", "inf", "nan", "1e3", "9" * 400, "9999999h", "1s2", "٣s"]
)
def test_no_durations(text):
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("plain é 名", "plain é 名"),
        ("\x1b]0;x\x07", "\\x1b]0;x\\x07"),
        ("a\nb", "a\\x0ab"),
        ("\u202egnp", "\\u202egnp"),
        ("\u2066\u200f\ufeff", "\\u2066\\u200f\\ufeff"),
        ("\udcff", "\\xff"),
        ("\ud800", "\\ud800"),
        ("\x9b31m", "\\x9b31m"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_names_cannot_steer_a_terminal(text, shown):
    assert printable(text) == shown


@pytest.mark.parametrize(
    "name, safe", [("python3.12", "python3.12"), ("../../x", "_.._x"), (".a b/c", "a_b_c"), ("", "process")]
)
def test_file_names(name, safe):
    assert safe_file_name(name) == safe


@pytest.mark.parametrize("ns, text", [(0, "0 ns"), (1_500, "1.50 µs"), (12_340_000, "12.3 ms"), (3_600e9, "3600 s")])
def test_duration_text(ns, text):
    assert duration_text(ns) == text


def test_stats_of_several_parts_add_up(native):
    one = {"pid": 7, "duration_ns": 5, "rate_hz": 100.0, **native.batch(7).stats}
    two = {**one, "pid": 8, "duration_ns": 9, "first_sample_ns": 5_000_000, "attached_ns": 0, "pause_us": {"p99": 90.0}}
    merged = merge([one, two], 3_000_000)
    assert (merged["pid"], merged["duration_ns"], merged["samples"]) == (7, 9, 700)
    assert merged["caches"] == {"code": {"hits": 10, "misses": 4}}
    assert (merged["pause_us"]["count"], merged["pause_us"]["p99"]) == (150, 90.0)
    assert merged["first_sample_ms"] == 2.0
    assert merged["unseen_cpu_ns"] == 2000
    assert "first_sample_ns" not in merged
    assert any("700 samples" in line for line in summary(merged))


def test_stats_of_nothing_are_all_there():
    merged = merge([], 0)
    expected = (
        "pid duration_ns rate_hz ticks thread_ticks samples distinct_stacks complete truncated unreadable gone "
        "late_ticks missed_ticks pending_ticks cpu_ns_sampled cpu_ns_process unseen_cpu_ns syscalls_restarted caches "
        "pause_us profiler_cpu_ns profiler_peak_rss_bytes first_sample_ms attached_ms output_bytes"
    )
    more = "unmatched cut unsampled_cpu_ns collisions torn told_births"
    assert list(merged) == [*expected.split(), *more.split()]
    assert list(merged["pause_us"]) == ["count", "p50", "p99", "max", "total"]
    assert summary(merged)
