# SPDX-License-Identifier: Apache-2.0
"""Runs plain scripts of PyTorch by themselves, in forks of a process that has imported it: the import takes longer than
the scripts do.

Each worker of a job normalizes by its own samples (BatchNorm), and worker 0 has the statistics. One process with the whole
batch does the same here when it is told how many parts that has."""

import json
import os
import pathlib
import subprocess
import sys
import traceback


class References:
    """The process to fork from. A context manager."""

    def __enter__(self):
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(30)

    def run(self, directory, script, *arguments, parts=1):
        """What the script printed; it must end well."""
        directory.mkdir(parents=True, exist_ok=True)
        order = {"directory": str(directory), "script": str(script), "arguments": list(map(str, arguments)), "parts": parts}
        print(json.dumps(order), file=self._process.stdin, flush=True)
        code = self._process.stdout.readline().strip()
        printed = (directory / "printed").read_text()
        assert code == "0", f"{script} alone ended with {code}: {printed}"
        return printed


def normalize_in_parts(parts):
    """BatchNorm as the workers of a job do it."""
    import torch

    whole = torch.nn.functional.batch_norm

    def by_parts(inputs, mean, variance, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
        if not training:
            return whole(inputs, mean, variance, weight, bias, training, momentum, eps)
        first, *others = inputs.chunk(parts)
        return torch.cat([whole(first, mean, variance, weight, bias, True, momentum, eps),
                          *(whole(part, None, None, weight, bias, True, momentum, eps) for part in others)])

    torch.nn.functional.batch_norm = by_parts


def run_here(order):
    """In a fork. Returns the exit code."""
    os.chdir(order["directory"])
    printed = os.open("printed", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    if order["parts"] > 1:
        normalize_in_parts(order["parts"])
    sys.argv = [order["script"], *order["arguments"]]
    text = pathlib.Path(order["script"]).read_text()
    main = type(sys)("__main__")
    main.__file__ = order["script"]
    sys.modules["__main__"] = main
    try:
        exec(compile(text, order["script"], "exec"), main.__dict__)
    except BaseException:  # whatever it is: nothing of this process is to go on
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
    return 0


def serve():
    import torch

    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # imports half of torch, too
    torch.set_num_threads(1)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(run_here(json.loads(line)))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
