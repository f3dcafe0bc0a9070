# SPDX-License-Identifier: Apache-2.0
"""What a shell offers for the values of options and arguments that are no click choices."""

from collections.abc import Callable, Iterable

import click

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def words_of(list_words: Callable[[], Iterable[str]]) -> Completer:
    """Offers the words that begin as typed; they are listed only when a shell asks."""

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        return [word for word in dict.fromkeys(list_words()) if word.startswith(incomplete)]

    return complete


def emitted(place: int) -> Completer:
    """Offers what some template takes: 0 ops, 1 backends, 2 architectures, 3 styles."""

    def list_words() -> Iterable[str]:
        from pipegen.selection_table import kernels

        return [key[place] for key in kernels()]

    return words_of(list_words)


def vocabulary(name: str) -> Completer:
    """Offers the words of a tuple in `pipegen.vocabulary`."""

    def list_words() -> Iterable[str]:
        from pipegen import vocabulary

        found: tuple[str, ...] = getattr(vocabulary, name)
        return found

    return words_of(list_words)


def explained() -> Completer:
    """Offers every name that `pipegen explain` knows."""

    def list_words() -> Iterable[str]:
        from pipegen.explanations import classes, rules, terms

        names = [term.name for term in terms()] + [entry.name for entry in classes()]
        return [*names, *(rule.code for rule in rules())]

    return words_of(list_words)
