"""How chat models mark who speaks: chosen by the special tokens that a model has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvassay.models.tokenizer import Tokenizer


@dataclass(frozen=True)
class Markup:
    """The text around a message.

    mark: the special token by which a model is known to use this markup; "" for any model.
    header: before a message, with {role}. end: what the speaker says to stop. after: between
    messages. roles: other names of roles; a role without one keeps its own. system: whether there
    are system messages; without them their text leads the first message of the user.
    """

    name: str
    mark: str
    header: str
    end: str
    after: str
    roles: tuple[tuple[str, str], ...] = ()
    system: bool = True

    def opened(self, role: str) -> str:
        """What stands before a message of that role."""
        return self.header.format(role=dict(self.roles).get(role, role))

    def parts(self, messages: list[tuple[str, str]]) -> list[tuple[str, tuple[str, str, str]]]:
        """Role of each (role, content) with header, content up to the end mark, rest."""
        if not self.system and messages and messages[0][0] == "system":
            (_, lead), (role, content), *rest = messages
            messages = [(role, f"{lead}\n\n{content}"), *rest]
        return [
            (role, (self.opened(role), f"{content}{self.end}", self.after))
            for role, content in messages
        ]


CHATML: Final = Markup("chatml", "<|im_start|>", "<|im_start|>{role}\n", "<|im_end|>", "\n")
MARKUPS: Final = (
    CHATML,
    Markup(
        "gemma",
        "<start_of_turn>",
        "<start_of_turn>{role}\n",
        "<end_of_turn>",
        "\n",
        roles=(("assistant", "model"),),
        system=False,
    ),
    Markup(
        "llama3",
        "<|start_header_id|>",
        "<|start_header_id|>{role}<|end_header_id|>\n\n",
        "<|eot_id|>",
        "",
    ),
    Markup(
        "plain",
        "",
        "{role}: ",
        "\n",
        "",
        roles=(("system", "System"), ("user", "User"), ("assistant", "Assistant")),
    ),
)


def markup_of(tokenizer: Tokenizer) -> Markup:
    """The markup whose mark is a special token of the model, else the plain one."""
    return next(one for one in MARKUPS if one.mark == "" or one.mark in tokenizer.specials)
