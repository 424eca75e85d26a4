"""Machine: which user a certificate is of, by rules (A11, X3).

    DNS:*.clients.acme -> $1        a name among the alternative ones, URI:… and DNS:…
    CN=*,OU=payments,** -> $1/L     the subject, in the order of RFC 2253; /L and /U change the case

`*` stands for one part (up to a dot in a DNS name, a slash in a URI, a comma in the subject), so no name can look like another one's; `**` stands for anything,
once in a pattern.
Names are tried in the order URI, DNS, subject, each against the rules in their order; the first that fits decides. Matching takes time in
proportion to the name: there is nothing to go back to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.security.records import name_problem

MAX_RULES = 100
MAX_NAME_CHARS = 1_000
_SHORT = {
    "commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU", "countryName": "C", "localityName": "L",
    "stateOrProvinceName": "ST", "domainComponent": "DC", "userId": "UID",
}  # fmt: skip
_SPECIAL = re.compile(r'[,+"\\<>;=]')
_HINT = "as in 'DNS:*.clients.acme -> $1; CN=*,O=Acme -> $1/L' (docs/security.md)"


class Rule(NamedTuple):
    pattern: re.Pattern[str]
    user: str
    """With $1, $2 … for what the stars stood for."""
    case: str


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Between semicolons or line ends. Raises INVALID_CONFIG."""
    lines = [line.strip() for line in re.split(r"[;\n]", text) if line.strip()]
    if len(lines) > MAX_RULES:
        raise HeadraceError(
            ErrorKind.INVALID_CONFIG, f"at most {MAX_RULES} rules say which user a certificate is of"
        )
    return tuple(_rule(line) for line in lines)


def _rule(line: str) -> Rule:
    pattern, arrow, user = (part.strip() for part in line.partition("->"))
    case = ""
    if user[-2:] in ("/L", "/U"):
        user, case = user[:-2], user[-1]
    stars = len(re.findall(r"\*{1,2}", pattern))
    wanted = [int(number) for number in re.findall(r"\$([0-9]{1,2})", user)]
    if not arrow or not pattern or not user:
        problem = "a rule is PATTERN -> USER"
    elif pattern.count("**") > 1 or "***" in pattern:
        problem = "** may stand once in a pattern"
    elif any(not 1 <= number <= stars for number in wanted):
        problem = f"there are {stars} stars to name with $"
    else:
        ends = "." if pattern.startswith("DNS:") else "/" if pattern.startswith("URI:") else r",=+\\"
        parts = re.split(r"(\*{1,2})", pattern)
        shape = {"*": f"([^{ends}]++)", "**": "(.*)"}
        return Rule(re.compile("".join(shape.get(part, re.escape(part)) for part in parts)), user, case)
    raise HeadraceError(ErrorKind.INVALID_CONFIG, f"{line!r}: {problem}", _HINT)


def user_of(rules: Iterable[Rule], certificate: Mapping[str, Any]) -> str | None:
    """Of a certificate that was verified, as Python's ssl shows it. None: it is nobody's here."""
    for name in _names(certificate):
        if len(name) > MAX_NAME_CHARS:
            continue
        for rule in rules:
            found = rule.pattern.fullmatch(name)
            if found is not None:
                user = "".join(
                    found[int(part)] if place % 2 else part
                    for place, part in enumerate(re.split(r"\$([0-9]{1,2})", rule.user))
                )
                user = user.lower() if rule.case == "L" else user.upper() if rule.case == "U" else user
                return user if name_problem(user) is None else None
    return None


def _names(certificate: Mapping[str, Any]) -> Iterable[str]:
    others = certificate.get("subjectAltName", ())
    for wanted in ("URI", "DNS"):
        yield from (f"{kind}:{name}" for kind, name in others if kind == wanted)
    parts = [part for together in reversed(certificate.get("subject", ())) for part in together]
    if parts:
        yield ",".join(f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in parts)


def _escaped(value: str) -> str:
    return _SPECIAL.sub(lambda found: "\\" + found[0], value)
