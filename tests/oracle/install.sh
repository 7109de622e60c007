# Installs TextWorld, ALFWorld and the planner into the environment whose bin/ is first in PATH. Run from the repository.
set -eu
pip() { python -m pip --quiet --disable-pip-version-check "$@"; }

if [ "$(uname -m)" = x86_64 ]; then
    pip install -c constraints.txt -e ".[alfworld-oracle]" pytest
    exit
fi

# Elsewhere (aarch64) there is no wheel of TextWorld. PDDL games need only its Python files, which the x86_64 wheel has.
# The planner's build asks for a cmake package without an aarch64 wheel: Debian's cmake and g++ build it as well.
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
pip install -c constraints.txt -e . pytest setuptools wheel \
    hashids mementos more-itertools networkx prompt_toolkit PyYAML TatSu termcolor tqdm
pip install -c constraints.txt --no-deps alfworld jericho
pip install -c constraints.txt --no-deps --no-build-isolation fast-downward-textworld
pip download -c constraints.txt --no-deps --only-binary=:all: --platform manylinux2014_x86_64 -d "$wheels" textworld
python -m zipfile -e "$wheels"/textworld-*.whl "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
