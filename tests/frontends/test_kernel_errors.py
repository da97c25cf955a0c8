"""What a kernel may not say: each refusal's text, whole."""

import pytest
from kernel_files import cases, run_file

from tilewright import CompileError

HEAD = "@kernel\ndef k(A: f32[M, K], idx: i32[M], C: f32[M, N]):\n"


def error_of(folder, text):
    """The error from running a file that says `text`, without the folder's name."""
    with pytest.raises(CompileError) as caught:
        run_file(folder, text)
    return str(caught.value).replace(str(folder / "kernel.py"), "kernel.py")


def indented(text):
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("body, error", cases("kernel_errors_body.txt"))
def test_body(tmp_path, body, error):
    assert error_of(tmp_path, HEAD + indented(body)) == error


@pytest.mark.parametrize("source, error", cases("kernel_errors.txt"))
def test_kernel(tmp_path, source, error):
    assert error_of(tmp_path, source + "\n") == error
