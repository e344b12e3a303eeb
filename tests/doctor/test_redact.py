"""What a report hides, and that it hides no more."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.doctor.redact import Redactor
from hybridctl.secrets import HIDDEN

HF = "hf_" + "AbCdEfGhIjKlMnOp0123"
# Kind, a line as it stands in logs and environments, and the piece that must be gone.
PLANTED = [
    ("hub token", f"Using token {HF} from the environment", HF),
    ("bearer header", "curl -H 'Authorization: Bearer abcdef123456ghijkl' http://localhost:8000/v1/models", "abcdef123456ghijkl"),
    ("AWS key id", "aws_access_key_id = AKIA" + "IOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"),
    ("AWS secret", "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI"),
    ("basic-auth URL", "Looking in indexes: https://alice:s3cr3tpass@mirror.corp.example.net/simple", "s3cr3tpass"),
    ("cookie", "Cookie: session=0123456789abcdef; csrftoken=zyxwvu", "zyxwvu"),
    ("private key", "-----BEGIN PRIVATE KEY-----\nb3BlbnNzaC1rZXkt\nQyNTU\n-----END PRIVATE KEY-----", "b3BlbnNzaC1rZXk"),
    ("signed token", "token=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmN", "dozjgNryP4J3jVmN"),
    ("e-mail address", "licence of wang.wei+gpu@some-lab.edu.cn expired", "wang.wei"),
    ("home folder", "FileNotFoundError: '/home/weiwang/models/Qwen3.6-27B/config.json'", "weiwang"),
    ("home folder of macOS", "File \"/Users/weiwang/x.py\", line 3", "weiwang"),
    ("home folder of Windows", r"C:\Users\weiwang\AppData\Local\x.dll", "weiwang"),
    ("home folder in WSL", "/mnt/c/Users/weiwang/models", "weiwang"),
    ("prompt", "weiwang@gpu-box-17:~/vllm$ vllm serve x", "gpu-box-17"),
    ("host in journald", "Nov 20 10:01:00 gpu-box-17 vllm[4711]: INFO", "gpu-box-17"),
    ("host in NCCL", "gpu-box-17:101:200 [0] misc/ib.cc:900 NCCL WARN", "gpu-box-17"),
    ("host flag", "vllm serve m --host inference.corp-net.example.net --port 8000", "corp-net"),
    ("host variable", "MASTER_ADDR=gpu-box-17", "gpu-box-17"),
    ("internal host", "failed to resolve llm.prod.internal", "llm.prod"),
    ("host of an address", "tcp://gpu-box-17:29500", "gpu-box-17"),
    ("cloud host", "on ip-10-1-22-33.eu-west-1.compute.internal", "ip-10-1-22-33"),
    ("account", "uid=1000(weiwang) gid=1000(weiwang)", "weiwang"),
    ("account variable", "USER=weiwang", "weiwang"),
    ("IPv4", "INFO:     10.20.30.40:51234 - \"GET /health HTTP/1.1\" 200 OK", "10.20.30.40"),
    ("IPv4 in the open", "(RayWorker pid=1, ip=203.0.113.7) lost", "203.0.113.7"),
    ("IPv6", "connect to 2001:db8:85a3::8a2e:370:7334 failed", "2001:db8"),
    ("link-local IPv6", "listening on fe80::1ff:fe23:4567:890a%eth0", "fe80::1ff"),
    ("hardware address", "eth0 ether 0a:1b:2c:3d:4e:5f txqueuelen", "0a:1b:2c"),
    ("GPU", "GPU-8f3c1e22-1111-2222-3333-444455556666 fell off the bus", "8f3c1e22"),
    ("API key flag", "vllm serve m --api-key qwertyuiop12", "qwertyuiop12"),
    ("named variable", "export SLACK_BOT_TOKEN=qwertyuiop12", "qwertyuiop12"),
    ("manifest", "- name: DB_PASSWORD\n  value: qwertyuiop12", "qwertyuiop12"),
]  # fmt: skip
KEPT = [
    "nvidia-cublas-cu12==12.9.1.4",
    "nvidia-curand-cu12        10.3.10.19",
    "[pip3] nvidia-cusparse-cu12==12.5.10.65",
    "[conda] nvidia-cufft-cu12 11.4.1.4 pypi_0 pypi",
    "cuDNN version: 9.10.2.21",
    "/usr/lib/x86_64-linux-gnu/libcudnn.so.9.10.2",
    "nvidia_cublas_cu12-12.9.1.4.dist-info",
    "6.6.87.2-microsoft-standard-WSL2",
    "WSL 版本： 2.6.1.0",
    "opencv-python-headless 5.0.0.93",
    "vllm 0.11.1.dev0+g1234.d20251101",
    "driver 580.95.05, CUDA 13.0",
    "--host 0.0.0.0 --port 8000",
    "http://127.0.0.1:8000/v1/chat/completions",
    "Uvicorn running on http://localhost:8000",
    "https://huggingface.co/Qwen/Qwen3.6-27B/resolve/main/config.json",
    "HTTPSConnectionPool(host='huggingface.co', port=443)",
    "Namespace(model='Qwen/Qwen3.6-27B', host=None, port=8000)",
    "11-24 09:13:32 [core.py:1510] x[::2] a[1:2] std::bad_alloc at::cuda c10::Error",
    "torch.ops.vllm.gdn_attention_core(q@k.transpose(-2, -1))",
    "0000:3b:00.0 VGA",
    "max_num_seqs (1024) exceeds available Mamba cache blocks (856)",
    "vllm/vllm-openai:v0.32.0",
    'File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line 1510, in __init__',
    "/opt/homebrew/lib, /home-made/x, /data/root/x",
    "the root of it, /rooted/x",
]


def cleaned(text: str, **known: object) -> str:
    redactor = Redactor(**known)  # type: ignore[arg-type]
    redactor.learn([text])
    return redactor.text(text)


@pytest.mark.parametrize(("kind", "line", "piece"), PLANTED, ids=[row[0] for row in PLANTED])
def test_what_is_planted_is_gone_and_the_line_stays(kind: str, line: str, piece: str) -> None:
    assert piece in line
    shown = cleaned(line)
    assert piece not in shown
    assert len(shown) > 4
    assert shown.splitlines()[0].split()[0][:3] == line.split()[0][:3] or shown.startswith(("~", "<", "'", "GPU-<"))
    redactor = Redactor()
    redactor.text(line)
    assert sum(redactor.counts.values()) >= 1


@pytest.mark.parametrize("line", KEPT)
def test_what_a_fault_is_about_stays(line: str) -> None:
    assert cleaned(line) == line


def test_a_name_that_is_given_away_once_is_hidden_everywhere() -> None:
    text = "weiwang@gpu-box-17:~$ ls\nsaved for weiwang on gpu-box-17.corp.example.net, not weiwangs or my-gpu-box-17\n"
    assert cleaned(text).splitlines()[1] == "saved for <user> on <host>.corp.example.net, not weiwangs or my-gpu-box-17"


def test_names_of_this_machine() -> None:
    redactor = Redactor(
        ["weiwang", "vllm", "me"], ["gpu-box-17.corp.example.net", "localhost"], home="/data/people/weiwang"
    )
    assert redactor.text("vllm of weiwang in /data/people/weiwang/x on gpu-box-17, localhost; me") == (
        "vllm of <user> in ~/x on <host>, localhost; me"
    )
    assert Redactor(home="/").text("/usr/lib") == "/usr/lib"
    assert Redactor(home="/root").text("/root/x /data/root/x /rooted") == "~/x /data/root/x /rooted"


def test_packages_that_are_known_have_versions_not_addresses() -> None:
    assert "10.2.3.4" not in Redactor().text("somelib 10.2.3.4")
    assert "10.2.3.4" in Redactor(packages=["somelib"]).text("somelib 10.2.3.4")
    assert Redactor().text("10.2.3.4", version=True) == "10.2.3.4"


def test_values_of_a_document_but_never_its_keys() -> None:
    document = {
        "/home/weiwang/x": ["/home/weiwang/y", {"ip 10.1.2.3": "10.1.2.3", "n": 3, "none": None, "yes": True}],
        "api_key": "short",
        "hf_token": ["a", "b"],
        "tokenizer": "Qwen",
        "max_tokens": "12",
        "password": "",
    }
    shown = Redactor().value(document)
    assert list(shown) == list(document)
    assert list(shown["/home/weiwang/x"][1]) == ["ip 10.1.2.3", "n", "none", "yes"]
    assert shown["/home/weiwang/x"] == ["~/y", {"ip 10.1.2.3": "<ip>", "n": 3, "none": None, "yes": True}]
    assert (shown["api_key"], shown["hf_token"], shown["tokenizer"]) == (HIDDEN, [HIDDEN, HIDDEN], "Qwen")
    assert (shown["max_tokens"], shown["password"]) == ("12", "")


def test_a_second_pass_changes_nothing() -> None:
    text = "\n".join(row[1] for row in PLANTED)
    once = cleaned(text)
    assert cleaned(once) == once


def test_real_reports_keep_their_meaning() -> None:
    """Of the recorded environments and logs few lines change, and none of them loses more than a name."""
    lines = changed = 0
    for path in sorted((Path(__file__).parents[1] / "data").glob("*/*.t*")):
        if path.parent.name not in ("env", "logs", "reports"):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        redactor = Redactor()
        redactor.learn([text])
        for line in text.splitlines():
            shown = redactor.text(line)
            lines += 1
            changed += shown != line
            assert len(shown) >= 0.45 * len(line), (path.name, line, shown)
    assert lines > 2000
    assert changed < 0.03 * lines


@given(st.text(alphabet="ab01:./@-=_ \n\\'\"<>[]~h{", max_size=200), st.text(max_size=50))
def test_any_text_is_taken(text: str, other: str) -> None:
    redactor = Redactor(users=[other], hosts=[text[:20]], home=other)
    redactor.learn([text, other])
    redactor.text(text + other)


@pytest.mark.parametrize(
    "piece", ["a.", "1.", "/a", "a@", "f:", "--host ", "A_", "user=", "-----BEGIN PRIVATE KEY-----", "/home/x"]
)
def test_long_lines_take_no_long_time(piece: str) -> None:
    begin = time.monotonic()
    Redactor().text(piece * (20_000 // len(piece)))
    assert time.monotonic() - begin < 20
