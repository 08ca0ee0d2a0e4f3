"""Questions about Ethereum's improvement proposals, each with the documents that answer it."""

from __future__ import annotations

import msgspec


class Question(msgspec.Struct, frozen=True):
    """`answers` are file stems; one of them among the first hits is enough."""

    text: str
    answers: frozenset[str]


def _question(text: str, *answers: int) -> Question:
    return Question(text, frozenset(f"eip-{number}" for number in answers))


QUESTIONS = (
    _question("stop a signed transaction from being replayed on another chain", 155),
    _question("a base fee that is burned and adjusts with how full blocks are", 1559),
    _question("largest size that the code of a deployed contract may have", 170, 7907, 7954),
    _question("undo state changes and hand unused gas back to the caller", 140),
    _question("signing structured data that a person can read in the wallet", 712),
    _question("contract address known before deployment, from a salt and the init code", 1014),
    _question("storage slots that are forgotten at the end of the transaction", 1153),
    _question("validators withdraw their stake to an execution layer address", 4895, 7002, 4863),
    _question("cheap temporary data for rollups with KZG commitments", 4844),
    _question("let an ordinary account delegate to the code of a contract", 7702, 3074, 5003),
    _question("opcode that pushes the constant zero on the stack", 3855),
    _question(
        "an interface that wallets inject into web pages so that dapps can send requests", 1193
    ),
    _question("finding peers through records in the domain name system", 1459),
    _question("GraphQL queries for a node instead of JSON-RPC", 1767),
    _question("several wallet extensions compete for the same window object", 6963, 5749),
    _question("larger maximum effective balance so that validators can be merged", 7251),
    _question("forcing block builders to include transactions despite censorship", 7805, 7547),
    _question("clients stop serving bodies and receipts of very old blocks", 4444, 7639, 7642),
    _question("expected values of a validator's earlier signatures moved between clients", 3076),
    _question("random value from the beacon chain in place of the mining difficulty", 4399),
)
