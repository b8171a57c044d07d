"""speculators' trainer in a folder of its own under `data/cache`: none of it goes into Strata's environment.

Its plain requirements would replace a CPU build of torch (by way of torchvision, which text does not need),
so it comes without them: the few that Strata's own environment lacks are named here, the others are there.
"""

import subprocess
import sys
from pathlib import Path

from deploy.demo.registry import DATA, DemoError
from deploy.demo.whole import making

PACKAGES = (
    "speculators==0.9.0",
    "hs-connectors==0.9.0",
    "loguru==0.7.3",
    "openai==3.57.0",
    "distro==1.9.0",
    "jiter==0.19.0",
    "sniffio==1.3.1",
)
ENVIRONMENT = DATA / "cache" / "incident-speculators-0.9.0"


def make_environment() -> Path:
    """Return the folder to put on the trainer's path, made with pip when it is not there yet."""
    with making(ENVIRONMENT) as partial:
        if partial is not None:
            print(f"fetching {', '.join(PACKAGES[:2])} and what they need", flush=True)
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--quiet", "--no-deps", "--no-input"]
            pip += ["--disable-pip-version-check", "--no-compile", "--target", str(partial), *PACKAGES]
            ran = subprocess.run(pip, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if ran.returncode:
                raise DemoError(
                    f"speculators could not be installed: pip ended with exit status {ran.returncode}; is "
                    f"the package index reachable?\n{ran.stderr.strip()}"
                )
    return ENVIRONMENT.resolve()
