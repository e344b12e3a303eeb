"""What a launch line says, in the many ways that people write one."""
# ruff: noqa: E501 -- a launch line is easier to read whole

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.doctor.facts.command import looks_like_command, parse_command
from hybridctl.doctor.facts.model import Facts


def read(text: str) -> dict[str, object]:
    facts = parse_command(text)
    for fact in facts:
        assert fact.origin.quote in text, fact
        assert fact.origin.source == "command"
    return {fact.key: facts.value(fact.key) for fact in facts}


def flags(text: str) -> dict[str, object]:
    return {key[5:]: value for key, value in read(text).items() if key.startswith("flag.")}


def quote(facts: Facts, key: str) -> str:
    fact = facts.get(key)
    assert fact is not None
    return fact.origin.quote


class TestServe:
    def test_all_parts(self) -> None:
        got = read(
            "VLLM_USE_V1=0 CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen3-0.6B --max-num-seqs=32 -tp 4 --gpu-memory-utilization 0.85"
        )
        assert got == {
            "engine": "vllm", "command.form": "serve", "model.name": "Qwen/Qwen3-0.6B", "flag.max-num-seqs": 32,
            "flag.tensor-parallel-size": 4, "flag.gpu-memory-utilization": 0.85, "env.VLLM_USE_V1": "0",
            "env.CUDA_VISIBLE_DEVICES": "0,1", "gpu.count": 2,
        }  # fmt: skip

    def test_the_quote_is_the_flag_with_its_value(self) -> None:
        facts = parse_command("vllm serve a/b-1 --tensor-parallel-size   4 --seed=1")
        assert quote(facts, "flag.tensor-parallel-size") == "--tensor-parallel-size   4"
        assert quote(facts, "flag.seed") == "--seed=1"

    @pytest.mark.parametrize(
        ("written", "name", "value"),
        [
            ("-tp 2", "tensor-parallel-size", 2),
            ("-tp=2", "tensor-parallel-size", 2),
            ("--tensor_parallel_size 2", "tensor-parallel-size", 2),
            ("--tp 2", "tensor-parallel-size", 2),
            ("-pp 2", "pipeline-parallel-size", 2),
            ("-dp 2", "data-parallel-size", 2),
            ("-ep", "enable-expert-parallel", True),
            ("--enable_prefix_caching", "enable-prefix-caching", True),
            ("--no-enable-prefix-caching", "enable-prefix-caching", False),
            ("--enable-prefix-caching false", "enable-prefix-caching", False),
            ("--max-model-len 32K", "max-model-len", 32768),
            ("--max-model-len 32k", "max-model-len", 32000),
            ("--max-model-len 25.6k", "max-model-len", 25600),
            ("--max-model-len -1", "max-model-len", -1),
            ("--gpu-memory-utilization .9", "gpu-memory-utilization", 0.9),
            ("-O3", "optimization-level", 3),
            ("-O 2", "optimization-level", 2),
            ("-O.mode=3", "compilation-config.mode", 3),
            ("-cc.cudagraph_mode PIECEWISE", "compilation-config.cudagraph_mode", "PIECEWISE"),
            ("-q fp8", "quantization", "fp8"),
            ("—max-model-len 4096", "max-model-len", 4096),
            ("--max-num-seqs 4 --max-num-seqs 8", "max-num-seqs", 8),
            ("--kv-cache-dtype=fp8_e4m3", "kv-cache-dtype", "fp8_e4m3"),
            ("--served-model-name a b", "served-model-name", "a b"),
        ],
    )
    def test_spellings(self, written: str, name: str, value: object) -> None:
        got = flags(f"vllm serve org/model-7b {written} --seed 1")
        assert got[name] == value
        assert got["seed"] == 1
        assert type(got[name]) is type(value)

    def test_a_switch_before_the_model_does_not_eat_it(self) -> None:
        got = read("vllm serve --enable-prefix-caching Qwen/Qwen3.6-27B --port 1")
        assert got["model.name"] == "Qwen/Qwen3.6-27B"
        assert got["flag.enable-prefix-caching"] is True

    @pytest.mark.parametrize(
        "name", ["MODEL", "$MODEL", "<model>", "${MODEL_PATH}", "/path/to/model", "your-model", "..."]
    )
    def test_a_placeholder_is_no_name(self, name: str) -> None:
        got = read(f"vllm serve {name} --seed 1")
        assert "model.name" not in got
        assert got["flag.seed"] == 1

    def test_variables_of_the_text_are_put_in_others_are_unknown(self) -> None:
        got = read('MODEL=Qwen/Qwen3.6-27B\nexport TP=4\nvllm serve "$MODEL" --tensor-parallel-size ${TP} --port $PORT')
        assert got["model.name"] == "Qwen/Qwen3.6-27B"
        assert got["flag.tensor-parallel-size"] == 4
        assert got["flag.port"] == "$PORT"
        assert got["env.TP"] == "4"
        assert "env.MODEL" not in got

    @pytest.mark.parametrize(
        "text",
        [
            "vllm serve a/b1 \\\n  --seed 1 \\\n  --port 2",
            "vllm serve a/b1 \\  \n  --seed 1 \\\r\n  --port 2",
            "vllm serve a/b1 `\n  --seed 1 `\n  --port 2",
            "vllm serve a/b1 ^\r\n  --seed 1 ^\r\n  --port 2",
            "vllm serve a/b1\n  --seed 1\n  --port 2",
            "I ran `vllm serve a/b1 --seed 1 --port 2` and it died",
            "```bash\nvllm serve a/b1 --seed 1 --port 2\n```",
            "$ cd /x && source .venv/bin/activate; nohup vllm serve a/b1 --seed 1 --port 2 > log.txt 2>&1 &",
            "root@box:/w# uv run --with vllm vllm serve a/b1 --seed 1 --port 2 | tee out",
            'bash -lc "vllm serve a/b1 --seed 1 --port 2"',
            "pip list\n\x1b[1mvllm\x1b[0m serve a/b1 --seed 1 --port 2",
            "torchrun --nproc-per-node 2 /opt/bin/vllm serve a/b1 --seed 1 --port 2",
            "vllm serve a/b1 # the model\n  --seed 1 --port 2",
        ],
    )
    def test_wrapping(self, text: str) -> None:
        facts = parse_command(text)
        assert facts.value("model.name") == "a/b1"
        assert (facts.value("flag.seed"), facts.value("flag.port")) == (1, 2)
        assert not [f for f in facts if f.key.startswith("flag.") and f.key not in ("flag.seed", "flag.port")]

    def test_the_command_that_serves_counts(self) -> None:
        got = read(
            "pip install vllm==0.17.1 torch==2.10.0+cu128\nvllm bench serve --model x/y-1\nvllm serve a/b-2 --seed 3\ncurl -X POST localhost"
        )
        assert got["command.form"] == "serve"
        assert got["model.name"] == "a/b-2"
        assert got["pkg.vllm"] == "0.17.1"
        assert got["torch.cuda"] == "12.8"

    def test_flags_that_cannot_be_seen_are_not_unset(self) -> None:
        assert parse_command("vllm serve a/b-1 --seed 1").flags_known()
        for hidden in ("--config conf.yaml", "$EXTRA_ARGS", "...", "${ARGS[@]}"):
            assert not parse_command(f"vllm serve a/b-1 --seed 1 {hidden}").flags_known(), hidden

    def test_secrets_are_not_kept(self) -> None:
        facts = parse_command("HF_TOKEN=hf_abcdef vllm serve a/b-1 --api-key sk-123456 --seed 1")
        assert facts.value("env.HF_TOKEN") == "***"
        assert not [
            f for f in facts if "hf_abc" in f"{f.value}{f.origin.quote}" or "sk-1" in f"{f.value}{f.origin.quote}"
        ]


class TestJson:
    @pytest.mark.parametrize(
        "written",
        [
            """'{"method":"mtp","num_speculative_tokens":3}'""",
            """'{"method": "mtp", "num_speculative_tokens": 3}'""",
            r'''"{\"method\": \"mtp\", \"num_speculative_tokens\": 3}"''',
            """{"method":"mtp", "num_speculative_tokens":3}""",
            """{method:mtp,num_speculative_tokens:3}""",
            """\"{'method': 'mtp', 'num_speculative_tokens': 3}\"""",
            """'{"method": "mtp",\n   "num_speculative_tokens": 3}'""",
            """'{"method": "mtp", "num_speculative_tokens": 3, ...}'""",
            """'{"method": "mtp", "num_speculative_tokens": 3""",
            "‘{“method”: “mtp”, “num_speculative_tokens”: 3}’".replace("“", '"').replace("”", '"'),
        ],
    )
    def test_speculative_config(self, written: str) -> None:
        got = flags(f"vllm serve a/b-1 --speculative-config {written}\n --seed 1")
        assert got["speculative-config.method"] == "mtp"
        assert got["speculative-config.num_speculative_tokens"] == 3
        assert got["seed"] == 1

    def test_dotted(self) -> None:
        got = flags("vllm serve a/b-1 --speculative-config.method mtp --speculative_config.num_speculative_tokens=3")
        assert got["speculative-config.method"] == "mtp"
        assert got["speculative-config.num_speculative_tokens"] == 3
        assert "speculative-config" in got

    def test_cut_short(self) -> None:
        got = flags("""vllm serve MODEL --speculative-config '{"method": "mtp", ...}' --enable-prefix-caching""")
        assert got["speculative-config.method"] == "mtp"
        assert "speculative-config.num_speculative_tokens" not in got
        assert got["enable-prefix-caching"] is True

    def test_nested(self) -> None:
        got = flags(
            """vllm serve a/b-1 --hf-overrides '{"text_config": {"rope_scaling": {"factor": 4.0}}, "architectures": ["X"]}'"""
        )
        assert got["hf-overrides.text_config.rope_scaling.factor"] == 4.0
        assert got["hf-overrides.architectures"] == ["X"]


class TestOtherEngines:
    def test_sglang(self) -> None:
        got = read(
            "python3 -m sglang.launch_server --model-path Qwen/Qwen3.5-397B-A17B-FP8 --tp 8 --ep-size 8 --speculative-algo NEXTN --speculative-num-steps 3 --disable-radix-cache"
        )
        assert got["engine"] == "sglang"
        assert got["command.module"] == "sglang.launch_server"
        assert got["model.name"] == "Qwen/Qwen3.5-397B-A17B-FP8"
        assert got["flag.tensor-parallel-size"] == 8
        assert got["flag.expert-parallel-size"] == 8
        assert got["flag.enable-expert-parallel"] is True
        assert got["flag.speculative-config.method"] == "nextn"
        assert got["flag.speculative-num-steps"] == 3
        assert got["flag.enable-prefix-caching"] is False

    def test_llama_server(self) -> None:
        got = read(
            "./build/bin/llama-server -m /m/Qwen3.5-35B-A3B-Q4_K_M.gguf -c 32768 -ngl 99 --jinja -fa on --no-mmap"
        )
        assert got["engine"] == "llama.cpp"
        assert got["model.name"] == "/m/Qwen3.5-35B-A3B-Q4_K_M.gguf"
        assert got["flag.ctx-size"] == 32768
        assert got["flag.n-gpu-layers"] == 99
        assert got["flag.jinja"] is True
        assert got["flag.mmap"] is False

    @pytest.mark.parametrize(
        ("command", "engine"),
        [
            ("lmdeploy serve api_server Qwen/Qwen3.5-35B-A3B --tp 2", "lmdeploy"),
            ("trtllm-serve Qwen/Qwen3.5-35B-A3B --tp_size 2", "tensorrt-llm"),
            ("text-generation-launcher --model-id Qwen/Qwen3.5-35B-A3B --tp 2", "tgi"),
        ],
    )
    def test_others(self, command: str, engine: str) -> None:
        got = read(command)
        assert (got["engine"], got["model.name"], got["flag.tensor-parallel-size"]) == (
            engine,
            "Qwen/Qwen3.5-35B-A3B",
            2,
        )

    def test_ollama(self) -> None:
        got = read("ollama run qwen3.5:35b --verbose")
        assert (got["engine"], got["model.name"]) == ("ollama", "qwen3.5:35b")

    def test_module(self) -> None:
        got = read("python -m vllm.entrypoints.api_server --model Qwen/Qwen3.6-27B --trust-remote-code")
        assert got["command.form"] == "module"
        assert got["command.module"] == "vllm.entrypoints.api_server"
        assert got["model.name"] == "Qwen/Qwen3.6-27B"

    def test_python_call(self) -> None:
        got = read(
            'import os\nos.environ["VLLM_USE_V1"] = "0"\nfrom vllm import LLM, SamplingParams\nllm = LLM(model="Qwen/Qwen3.6-27B", tensor_parallel_size=2,\n  enable_prefix_caching=True, speculative_config={"method": "mtp", "num_speculative_tokens": 2}, dtype=dtype)\nprint(llm)'
        )
        assert got["command.form"] == "python"
        assert got["model.name"] == "Qwen/Qwen3.6-27B"
        assert got["flag.tensor-parallel-size"] == 2
        assert got["flag.enable-prefix-caching"] is True
        assert got["flag.speculative-config.num_speculative_tokens"] == 2
        assert got["env.VLLM_USE_V1"] == "0"

    def test_pip(self) -> None:
        facts = parse_command("uv pip install vllm==0.22.0 --torch-backend=cu129")
        assert facts.value("pkg.vllm") == "0.22.0"
        assert facts.value("flag.torch-backend") == "cu129"
        assert facts.value("command.form") == "pip"
        assert not facts.flags_known()

    def test_pip_without_a_pin_states_no_version(self) -> None:
        assert "pkg.vllm" not in read("pip install -U 'vllm>=0.20' --extra-index-url https://wheels.vllm.ai/nightly")


class TestContainers:
    def test_docker_on_windows(self) -> None:
        got = read(
            r'docker run --rm --name q1 --runtime nvidia --gpus "device=0" --ipc=host -v "m:\models\Qwen3-VL-4B:/app/models/Qwen3-VL-4B" -p 8000:8000 vllm/vllm-openai:v0.11.0 --model /app/models/Qwen3-VL-4B --swap-space 2'
        )
        assert got["command.form"] == "docker"
        assert got["command.image"] == "vllm/vllm-openai:v0.11.0"
        assert got["pkg.vllm"] == "0.11.0"
        assert got["command.mounts"] == [r"m:\models\Qwen3-VL-4B"]
        assert got["command.shm"] == "host"
        assert got["command.runtime"] == "nvidia"
        assert got["gpu.count"] == 1
        assert got["model.name"] == "/app/models/Qwen3-VL-4B"
        assert got["flag.swap-space"] == 2
        assert got["platform.container"] is True

    def test_docker_options(self) -> None:
        got = read("""sudo docker run -itd --gpus '"device=0,1"' --shm-size 16g --cap-add=SYS_PTRACE --cap-add IPC_LOCK -e VLLM_PLE_CPU_OFFLOAD=1 --env NCCL_DEBUG=INFO -e HF_TOKEN \\
          -v ~/.cache/huggingface:/root/.cache/huggingface -v cache:/c --mount type=bind,source=/data,target=/data vllm/vllm-openai:v0.20.0-cu130 Qwen/Qwen3.6-27B -tp 2""")
        assert got["gpu.count"] == 2
        assert (got["command.shm"], got["platform.shm_gib"]) == ("16g", 16)
        assert got["command.caps"] == ["SYS_PTRACE", "IPC_LOCK"]
        assert got["env.VLLM_PLE_CPU_OFFLOAD"] == "1"
        assert got["env.NCCL_DEBUG"] == "INFO"
        assert "env.HF_TOKEN" not in got
        assert got["command.mounts"] == ["~/.cache/huggingface", "/data"]
        assert got["vllm.cuda"] == "13.0"
        assert got["model.name"] == "Qwen/Qwen3.6-27B"
        assert got["flag.tensor-parallel-size"] == 2

    def test_docker_with_a_command(self) -> None:
        got = read(
            "docker run --gpus all lmsysorg/sglang:v0.5.8 python3 -m sglang.launch_server --model-path a/b-1 --tp 2"
        )
        assert (got["engine"], got["command.form"], got["pkg.sglang"]) == ("sglang", "docker", "0.5.8")
        assert got["flag.tensor-parallel-size"] == 2
        assert "gpu.count" not in got

    def test_docker_entrypoint_and_script(self) -> None:
        assert flags("docker run --entrypoint vllm my/image:1 serve a/b-1 --seed 1")["seed"] == 1
        assert (
            flags("docker run --entrypoint bash my/image:1 -c 'pip install x && vllm serve a/b-1 --seed 1'")["seed"]
            == 1
        )

    def test_a_container_of_something_else_is_no_launch(self) -> None:
        assert "command.form" not in read("docker run -it nvidia/cuda:12.4 bash")

    def test_compose(self) -> None:
        got = read(COMPOSE)
        assert got["command.form"] == "compose"
        assert got["model.name"] == "Qwen/Qwen3.8-Flash-Next-FP8"
        assert got["flag.tensor-parallel-size"] == 4
        assert got["flag.speculative-config.num_speculative_tokens"] == 3
        assert got["env.VLLM_PLE_CPU_OFFLOAD"] == "1"
        assert got["command.shm"] == "32gb"
        assert got["command.caps"] == ["SYS_PTRACE"]
        assert got["command.mounts"] == ["/models"]
        assert got["gpu.count"] == 4
        assert "env.POSTGRES_DB" not in got

    def test_compose_command_as_text(self) -> None:
        got = flags(
            "services:\n  v:\n    image: vllm/vllm-openai:latest\n    command: >\n      --model a/b-1\n      --seed 1\n      --max-model-len ${LEN:-32K}\n"
        )
        assert got == {"model": "a/b-1", "seed": 1, "max-model-len": 32768}

    def test_kubernetes(self) -> None:
        got = read(POD)
        assert got["command.form"] == "kubernetes"
        assert got["model.name"] == "Qwen/Qwen3.6-27B"
        assert got["flag.tensor-parallel-size"] == 2
        assert got["env.VLLM_USE_V1"] == "1"
        assert got["gpu.count"] == 2
        assert (got["command.shm"], got["platform.shm_gib"]) == ("8Gi", 8)

    def test_kubernetes_script(self) -> None:
        got = flags(
            "kind: Pod\nspec:\n  containers:\n  - image: x/y\n    command: [/bin/sh, -c]\n    args:\n    - |\n      export A_B=1\n      vllm serve a/b-1 \\\n        --seed 1\n"
        )
        assert got == {"seed": 1}

    def test_file_of_flags(self) -> None:
        got = read(
            "model: Qwen/Qwen3.6-27B\ntensor-parallel-size: 4\nenable_prefix_caching: true\nspeculative-config:\n  method: mtp\n  num_speculative_tokens: 3\n"
        )
        assert got["engine"] == "vllm"
        assert got["model.name"] == "Qwen/Qwen3.6-27B"
        assert got["flag.tensor-parallel-size"] == 4
        assert got["flag.enable-prefix-caching"] is True
        assert got["flag.speculative-config.num_speculative_tokens"] == 3


COMPOSE = """\
version: "3"
services:
  db:
    image: postgres
    environment: {POSTGRES_DB: x}
  llm:
    image: vllm/vllm-openai:latest
    shm_size: 32gb
    cap_add: [SYS_PTRACE]
    environment:
      - VLLM_PLE_CPU_OFFLOAD=1
    volumes:
      - /models:/models:ro
    command:
      - Qwen/Qwen3.8-Flash-Next-FP8
      - --tensor-parallel-size
      - "4"
      - --speculative-config={"method":"mtp","num_speculative_tokens":3}
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              device_ids: ["0", "1", "2", "3"]
"""
POD = """\
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.20.0
          command: ["vllm", "serve"]
          args: ["Qwen/Qwen3.6-27B", "--tensor-parallel-size=2"]
          env:
            - name: VLLM_USE_V1
              value: "1"
          resources:
            limits:
              nvidia.com/gpu: "2"
      volumes:
        - name: shm
          emptyDir:
            medium: Memory
            sizeLimit: 8Gi
"""


@pytest.mark.parametrize(
    "text",
    [
        "", "   \n", "it crashed", "I use vllm serve with speculative decoding and it dies", "an LLM (large language model)",
        "name: value\nother: thing\n", "{}", "services: []", "pip install requests", "git commit -m 'vllm serve'",
        "python train.py --model x/y-1",
    ],
)  # fmt: skip
def test_nonsense_states_nothing(text: str) -> None:
    assert len(parse_command(text)) == 0
    assert not looks_like_command(text)


def test_looks_like_command() -> None:
    assert looks_like_command("vllm serve a/b-1")
    assert looks_like_command("pip install vllm==0.20.0")


PIECES = [
    "vllm", "serve", "docker", "run", "--gpus", "-e", "A=1", "python", "-m", "vllm.entrypoints.api_server", "--model", "a/b", "'", '"',
    "\\", "\n", "`", "{", "}", "[", "$", "${", "(", ")", "$(", "<", ">", ">&", "--speculative-config", "'{\"a\": {", "services:", "  x:", ": ",
    "- ", "&a", "*a", "|", "!!python/object", "LLM(", "model=", "\x1b[31m", "—", "-O", "-O3", "--", "-", "export", "\ud800", "\x00",
    "sh", "-c", "kind: Pod\nspec:\n containers:\n - image: vllm\n   args: [", "--x.y.z=", "9" * 30, "1e999", "pip install", "vllm==1",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=30), st.sampled_from(["", " ", "\n"]))
def test_never_raises_and_quotes_verbatim(pieces: list[str], glue: str) -> None:
    text = glue.join(pieces)
    plain = text.replace("\x1b[31m", "")
    for fact in parse_command(text):
        assert fact.origin.quote in plain


def test_long_input_is_quick() -> None:
    parse_command("vllm serve " + "'" * 300_000)
    parse_command("vllm serve a/b-1 " + "--x {a:" * 50_000)
    parse_command("vllm serve a/b-1 " + "$(" * 100_000)
    parse_command("a: " * 100_000)
