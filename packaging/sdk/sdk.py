"""``trine.sdk`` where trine itself is not installed: loads the package that lies beside this file under that name.

Where trine is installed as well, its package ``trine/sdk/`` goes before a module ``trine/sdk.py``, and this file is not
read.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path


def _load() -> None:
    home = Path(__file__).with_name("_sdk")
    spec = spec_from_file_location(__name__, home / "__init__.py", submodule_search_locations=[str(home)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{home}: not found; install trine-sdk again")
    module = sys.modules[__name__] = module_from_spec(spec)
    spec.loader.exec_module(module)


_load()
