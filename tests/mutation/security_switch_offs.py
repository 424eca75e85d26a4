"""One place for each rule of security where it can be switched off, and the test that has to notice (P18). `scripts/security-switch-offs` tries them."""

from __future__ import annotations

from typing import NamedTuple


class SwitchOff(NamedTuple):
    rule: str
    file: str
    before: str
    """Stands once in the file."""
    after: str
    test: str
    """Below tests/; a beginning of its name is enough."""


SWITCH_OFFS = [
    SwitchOff("A9", "security/image.py", "return Revoked(name) if before is not None and before.enabled else None", "return None", "unit/security/test_rules.py::test_a9_who_is_disabled_or_deleted"),
    SwitchOff("A9", "kafka/handlers/k01_fetch.py", "if access is not None and access.version != version:", "if False:", "client/test_securing.py::test_p10_"),
    SwitchOff("A9", "security/standing.py", "is_gone = bool(owner_life) and self._life(name) != owner_life", "is_gone = False", "client/test_standing_orders.py::test_a9_"),
    SwitchOff("A9", "http/receiving.py", "if access is None or access.version == version:", "if True:", "client/test_withdrawn.py::test_a9_a_long_poll"),
    SwitchOff("A9", "http/guarding.py", "                if access.version != version:\n", "                if False:\n", "client/test_withdrawn.py::test_a9_a_stream"),
    SwitchOff("A9", "kafka/handlers/k78_share_fetch.py", "if call.refuses(Operation.READ, GROUP, group):", "if False:", "client/test_withdrawn.py::test_a9_a_share_fetch"),
    SwitchOff("A10", "security/records.py", 'if any(character in ",=:" for character in name):', "if False:", "unit/security/test_rules.py::test_a10_no_name"),
    SwitchOff("A14", "security/guard.py", "            if self.authorizer.enforces:\n                return None\n", "", "client/test_security_doors.py::test_a14_"),
    SwitchOff("A17", "security/passwords.py", "if self._waiting >= MOST_WAITING:", "if False:", "unit/security/test_passwords.py::test_a17_"),
    SwitchOff("A18", "security/scram.py", 'if flag not in ("n", "y"):', "if False:", "unit/security/test_scram.py::test_p7_a_first"),
    SwitchOff("A19", "security/passwords.py", "KNOWN_MS = 60_000", "KNOWN_MS = 0", "unit/security/test_passwords.py::test_a19_"),
    SwitchOff("A21", "kafka/dispatch.py", "if session.ends_ms and self._broker.runtime.clock.now_ms() >= session.ends_ms:", "if False:", "client/test_delegation_tokens.py::test_a43_it_ends"),
    SwitchOff("A21", "kafka/handlers/k17_sasl_handshake.py", "        if early_ms > 0:\n", "        if False:\n", "client/test_login_limits.py::test_a21_"),
    SwitchOff("A22", "http/guarding.py", "        if session_of(request):\n", "        if False:\n", "client/test_login_limits.py::test_a22_"),
    SwitchOff("A23", "security/tokens.py", "if not hmac.compare_digest(_checksum(body), token[-_CHECKSUM:]):", "if False:", "unit/security/test_tokens.py::test_a23_a_token_has"),
    SwitchOff("A23", "security/last_use.py", "self._used[key] - record.used_ms >= COARSE_MS", "self._used[key] > record.used_ms", "client/test_last_use.py::test_a23_"),
    SwitchOff("A25", "security/logins.py", "if now_ms - self._sessions.get(digest, now_ms) > IDLE_MS:", "if False:", "client/test_login_limits.py::test_a25_"),
    SwitchOff("A29", "cli/contexts.py", "if path.stat().st_mode & 0o077:", "if False:", "unit/cli/test_contexts.py::test_a29_"),
    SwitchOff("A31", "http/rest/sealing.py", "if len(first) > 1:", "if False:", "client/test_resealing.py::test_a31_"),
    SwitchOff("A31", "security/resealing.py", "found = await self._credentials()", "found = Resealed()", "client/test_resealing.py::test_a31_"),
    SwitchOff("A31", "security/sealing.py", "encrypt(nonce, secret, about.encode())", 'encrypt(nonce, secret, b"")', "unit/security/test_sealing.py::test_a31_"),
    SwitchOff("A35", "node/core_dumps.py", "ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)", "pass", "unit/security/test_core_dumps.py::test_a35_"),
    SwitchOff("A37", "security/acl_book.py", "if acl.permission is Permission.DENY:", "if False:", "unit/security/test_rules.py::test_a37_a_denial"),
    SwitchOff("A38", "security/access.py", "if authorizer.version != self._version or", "if False or", "client/test_security_doors.py::test_a38_"),
    SwitchOff("A39", "security/standing.py", "                if image.enforces:\n", "                if False:\n", "client/test_standing_orders.py::test_a39_a_webhook"),
    SwitchOff("A40", "security/image.py", "        return _NARROWER\n", "        return verdict\n", "client/test_narrower_tokens.py::test_a40_a_token"),
    SwitchOff("A40", "http/rest/credentials.py", "if access is not None and security.image.rights_of(access.credential) is not None:", "if False:", "client/test_narrower_tokens.py::test_a40_with"),
    SwitchOff("A41", "security/acl_book.py", "            if not internal:\n", "            if True:\n", "unit/security/test_rules.py::test_a41_"),
    SwitchOff("A43", "kafka/delegation_tokens.py", "        or image.is_delegated(credential)\n", "", "client/test_delegation_tokens.py::test_a43_a_token"),
    SwitchOff("A43", "kafka/handlers/k38_create_delegation_token.py", "if owner != by and call.refuses(", "if False and call.refuses(", "client/test_delegation_tokens.py::test_a43_for_somebody"),
    SwitchOff("A44", "security/access.py", "return self.may(Operation.DESCRIBE, resource, name) or not self._authorizer.enforces", "return True", "client/test_tenants.py::test_a63_two"),
    SwitchOff("A45", "security/guard.py", "if in_path and right.resource in ABSENT and not access.may(", "if False and not access.may(", "client/test_security_doors.py::test_a45_"),
    SwitchOff("A49", "security/image.py", "        if operation is Operation.CLUSTER_ACTION:\n", "        if False:\n", "unit/security/test_rules.py::test_a49_"),
    SwitchOff("A51", "security/image.py", "self._set_mode(ModeRecord(Mode.ENFORCED))", "pass", "unit/security/test_rules.py::test_a51_a_damaged_mode"),
    SwitchOff("A52", "http/rest/security.py", "await self._denials.need_ready()", "pass", "client/test_standing_orders.py::test_a52_"),
    SwitchOff("A52", "http/rest/denials.py", "if broker.id != self._image.broker_id]", "if False]", "client/test_securing.py::test_p11_"),
    SwitchOff("A55", "node/securing.py", 'return "open" if self._settings.is_loopback else "open-to-network"', 'return ""', "client/test_login_limits.py::test_a55_"),
    SwitchOff("A61", "security/login_limits.py", "if sum(record.tried.values()) >= FAILURES:", "if False:", "unit/security/test_rules.py::test_a61_who"),
    SwitchOff("A61", "kafka/server.py", "if self._logins.is_shut_out(connection.host):", "if False:", "client/test_login_limits.py::test_a61_who_guesses_at_the_kafka"),
    SwitchOff("A62", "broker/connections.py", "if len(held) <= most:", "if True:", "client/test_login_limits.py::test_a62_"),
    SwitchOff("A62", "http/metering.py", "self._take(request, REQUESTS, stepped.spent_ms)", "pass", "client/test_tenants.py::test_a62_"),
    SwitchOff("A63", "security/admin.py", "await self.remove_acls([acl for acl in tenant_rights(name, prefix) if acl in self.image.acls])", "pass", "client/test_tenants.py::test_a63_two"),
    SwitchOff("A64", "kafka/dispatch.py", "if entry.key in CHANGES and self._security.logins.audit.is_on:", "if False:", "client/test_audit.py::test_a64_what_is_done"),
    SwitchOff("A64", "http/sqs/door.py", "if is_guarded and name in CHANGING:", "if False:", "client/test_audit.py::test_a64_what_is_done"),
    SwitchOff("P16", "push/secret_codec.py", "        if self._sealer is None:\n            return plain\n", "        return plain\n", "client/test_canaries.py::test_p16_"),
    SwitchOff("P4", "kafka/handlers/k61_describe_producers.py", 'RIGHTS = needs(read(TOPIC, "topics[].name"))', "RIGHTS = needs()", "client/test_rights_matrix.py::test_p4_"),
]  # fmt: skip
