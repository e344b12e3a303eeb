"""The scan for fast-math, on lines as nvcc 13.0 writes them with and without ``--use_fast_math``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridctl.kernels import ptx

HEAD = ".version 9.0\n.target sm_80\n.address_size 64\n.visible .entry first(\n)\n{\n"


@pytest.mark.parametrize(
    "line",
    [
        "div.approx.ftz.f32 %f1, %f2, %f3;",
        "div.full.f32 %f1, %f2, %f3;",
        "sqrt.approx.f32 %f1, %f2;",
        "rcp.approx.ftz.f32 %f1, %f2;",
        "lg2.approx.f32 %f1, %f2;",
        "sin.approx.ftz.f32 %f1, %f2;",
        "tanh.approx.f32 %f1, %f2;",
        "add.ftz.f32 %f1, %f2, %f3;",
        "fma.rn.ftz.f32 %f1, %f2, %f3, %f4;",
        "setp.lt.ftz.f32 %p1, %f1, %f2;",
        "cvt.rn.ftz.f16.f32 %h1, %f1;",
    ],
)
def test_what_only_fast_math_writes(line: str) -> None:
    found = ptx.fast_math(HEAD + "mov.f32 %f2, 0f3F800000;\n" + line)
    assert [(f.line, f.instruction) for f in found] == [(8, line.split(" ")[0])]


@pytest.mark.parametrize(
    "line",
    [
        "ex2.approx.ftz.f32 %f1, %f2;",
        "div.rn.f32 %f1, %f2, %f3;",
        "sqrt.rn.f32 %f1, %f2;",
        "rcp.rn.f32 %f1, %f2;",
        "fma.rn.f32 %f1, %f2, %f3, %f4;",
        "fma.rn.bf16x2 %r1, %r2, %r3, %r4;",
        "min.NaN.f32 %f1, %f2, 0f00000000;",
        "// div.approx.ftz.f32",
        "/* a comment\n add.ftz.f32 */ ret;",
        "call div_approx_helper;",
    ],
)
def test_what_a_careful_compiler_writes(line: str) -> None:
    assert ptx.fast_math(HEAD + line) == []


def test_what_a_text_says_of_itself() -> None:
    text = HEAD + "ret;\n}\n.entry second(\n)\n{ ret; }\n.func helper() { ret; }"
    assert (ptx.isa(text), ptx.target(text), ptx.entries(text)) == ((9, 0), "sm_80", ("first", "second"))
    assert (ptx.isa("no PTX"), ptx.target(""), ptx.entries("")) == (None, "", ())


@given(st.text())
def test_any_text_is_scanned(text: str) -> None:
    ptx.fast_math(text)
    ptx.isa(text)
    ptx.target(text)
    ptx.entries(text)
