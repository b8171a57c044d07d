"""Every error of datagen's own (the store and the engines have theirs).

StrataError
 +-- ConfigError        settings are missing, unknown or contradict each other
 +-- SpaceError         the target cannot be written, or is too small for what the plan says
 +-- ResumeError        the dataset was made with other content-deciding settings
 +-- FleetError         no cluster, no worker, or workers that cannot start
 +-- ExportError        what a format needs is not in the dataset
 +-- IngestError        files are not what they are said to be; nothing of them is written
 +-- RunFailedError     the run stopped by itself; what was good is committed
"""

from schemas.errors import StrataError


class ConfigError(StrataError):
    """Settings are missing, unknown or contradict each other."""


class SpaceError(StrataError):
    """The target cannot be written, or is too small for what the plan says."""


class ResumeError(StrataError):
    """The dataset was made with other content-deciding settings; `problems` lists the differences."""


class FleetError(StrataError):
    """No cluster, no worker, or workers that cannot start."""


class RunFailedError(StrataError):
    """The run stopped by itself; what was good until then is committed."""

    exit_code = 1


class ExportError(StrataError):
    """What a file format needs is not in the dataset, or not as its trainer takes it."""

    exit_code = 1


class IngestError(StrataError):
    """Files of another library's are not what they are said to be; nothing of them is written."""

    exit_code = 1
