from hybridctl.doctor.facts.clean import MAX_LINE, MAX_LINES, MAX_TEXT, clean_lines


def test_lines_keep_their_numbers_and_long_ones_are_cut() -> None:
    lines = clean_lines("a\n\n> b\r\n" + "c" * 9000 + "\nd")
    assert [(x.number, x.text[:3], len(x.text)) for x in lines] == [
        (1, "a", 1), (3, "b", 1), (4, "ccc", MAX_LINE), (5, "d", 1),
    ]  # fmt: skip


def test_a_huge_text_is_looked_at_as_far_as_the_limits() -> None:
    assert len(clean_lines("a\n" * (MAX_LINES + 10))) == MAX_LINES
    assert sum(len(x.text) for x in clean_lines(("a" * 5000 + "\n") * 2500)) <= MAX_TEXT
