"""Records a job's rounds for TensorBoard, by torch's own writer. Needs `pip install tensorboard`."""

from collections.abc import Mapping
from pathlib import Path

from gradmarket.callbacks import fields_of, not_installed
from gradmarket.market.views.job_views import JobView

try:
    from torch.utils.tensorboard import SummaryWriter
except ModuleNotFoundError:
    raise not_installed("TensorBoard", "tensorboard") from None


class TensorBoard:
    """Writes event files into `folder/<job's id>`; show them with `tensorboard --logdir folder`."""

    def __init__(self, folder: Path | str = "runs") -> None:
        self._folder = Path(folder)

    def started(self, job: JobView) -> None:
        self._writer = SummaryWriter(str(self._folder / job.id))
        rows = "\n".join(f"| {name} | {value} |" for name, value in fields_of(job).items())
        self._writer.add_text("job", f"{job.name}\n\n| field | value |\n|---|---|\n{rows}")

    def round_closed(self, number: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, number)
        self._writer.flush()

    def ended(self, job: JobView) -> None:
        self._writer.add_text("state", f"{job.state} {job.reason}".strip())
        self._writer.close()
