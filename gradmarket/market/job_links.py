"""The transport of a job's answers from workers, and of its parameters to them."""

from pydantic import Field, model_validator

from gradmarket.market.fields import Count, Name, Part


class Link(Part):
    codec: Name = "fp32"

    @property
    def small(self) -> bool:
        """Whether values are rounded to fewer bytes than they have."""
        return self.codec != "fp32"


class FirstUpdates(Part):
    """The updates of the first rounds, in which parameters change most."""

    codec: Name
    rounds: Count
    """How many rounds, from round 0 on."""


def _is_none(first: FirstUpdates | None) -> bool:
    return first is None


class Downlink(Link):
    first: FirstUpdates | None = Field(default=None, exclude_if=_is_none)
    """Rounds whose updates have another codec. Omitted where there are none, so that older publications keep their
    digests."""

    @model_validator(mode="after")
    def _all_small(self) -> "Downlink":
        if self.first is not None and "fp32" in (self.codec, self.first.codec):
            raise ValueError("first: updates have a codec for gradients in all rounds, or in none")
        return self

    def codec_of(self, number: int) -> str:
        """Returns the codec of the update that a round publishes."""
        return self.first.codec if self.first is not None and number < self.first.rounds else self.codec
