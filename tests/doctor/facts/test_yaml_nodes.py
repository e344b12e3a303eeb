import time

from hybridctl.doctor.facts.command import parse_command
from hybridctl.doctor.facts.yaml_nodes import documents, plain


def bomb(last: str) -> str:
    rows = ["x0: &x0 [a]", *(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]" for i in range(1, 30))]
    return "\n".join(rows) + f"\n{last}\n"


def test_aliases_of_aliases_take_no_time() -> None:
    begin = time.process_time()
    facts = parse_command(bomb("model: m\ntensor-parallel-size: 2\nmax-model-len: *x29\nhf-overrides: *x29"))
    assert time.process_time() - begin < 3
    assert facts.value("flag.tensor-parallel-size") == 2


def test_a_tree_becomes_values() -> None:
    text = "a: [1, true, x, '2']\nb: {c: null}\n"
    (root,) = documents(text, 0, len(text))
    assert plain(root) == {"a": [1, True, "x", "2"], "b": {"c": None}}
