import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.data import recipes_dir
from hybridctl.secrets import HIDDEN, hide, hide_all

HF, KEY = "hf_" + "AbCdEfGhIjKlMnOp0123", "sk-" + "proj-Qw3rTy0123456789abcd"


@pytest.mark.parametrize(
    "text",
    [
        f"HF_TOKEN={HF}",
        f"Authorization: Bearer {KEY}",
        "headers={'authorization': 'Basic dXNlcjpodW50ZXIyMDA='}",
        "vllm serve m --api-key hunter2hunter2",
        "'api_key': ['hunter2hunter2'], 'model': 'm'",
        "Namespace(model='m', ssl_keyfile_password='hunter2hunter2')",
        "GET https://user:hunter2hunter2@proxy:8080/x",
        "https://hub/x?token=hunter2hunter2&y=1",
        "MY_PASS=hunter2hunter2",
        "export SLACK_BOT_TOKEN='hunter2hunter2'",
        "AWS_SECRET_ACCESS_KEY=hunter2hunter2/x+y",
        "  - name: MY_REGISTRY_PASSWORD\n    value: hunter2hunter2",
        "DB_CREDENTIALS: hunter2hunter2",
        "Cookie: session=hunter2hunter2; csrf=hunter2hunter2",
        "'Set-Cookie': 'hunter2hunter2'",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2hunter2\nhunter2hunter2\n-----END OPENSSH PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2hunter2\n",
        "aws: ASIA" + "HUNTER2HUNTER2AB and hunter2".replace("hunter2", ""),
        "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJodW50ZXIyIn0.hunter2hunter2",
    ],
)
def test_a_credential_is_taken_out_and_the_rest_stays(text: str) -> None:
    shown = hide(text)
    assert HIDDEN in shown
    assert not any(secret in shown for secret in (HF, KEY, "hunter2hunter2", "dXNlcjpodW50ZXIyMDA="))
    assert shown.split(HIDDEN)[0] == text[: len(shown.split(HIDDEN)[0])] != ""


@pytest.mark.parametrize(
    "text",
    [
        "max_num_batched_tokens=8192",
        "eos_token='<|endoftext|>'",
        "401 Client Error: Unauthorized for url: https://huggingface.co/x/resolve/main/config.json",
        "api_key=None",
        "docker run -e HF_TOKEN=$HF_TOKEN",
        'hf-token = ["0.8.5", ""]',
        "the secret of the driver is its version",
        "[Errno 98] tcp://10.0.0.1:8000",
        "EOS_TOKEN: <|endoftext|>",
        "HF_TOKEN=${HF_TOKEN}",
        "NUM_TOKEN=4096",
        "PAD_TOKEN=None",
        "cookie: no",
        "MAX_TOKENS=32768",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    ],
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert hide(text) == text


def test_nothing_that_we_ship_is_taken_for_a_credential() -> None:
    for path in sorted(recipes_dir().rglob("*.toml")):
        text = path.read_text(encoding="utf-8")
        changed = [a for a, b in zip(text.splitlines(), hide(text).splitlines(), strict=True) if a != b]
        assert not changed, (path.name, changed)


def test_documents_are_gone_through_at_every_depth() -> None:
    assert hide_all({"a": [{"b": f"x {HF}"}, 1, None]}) == {"a": [{"b": f"x {HIDDEN}"}, 1, None]}


@given(st.text())
def test_any_text_can_be_looked_through(text: str) -> None:
    hide(text + " token " + text)
