"""A10, A36, A37, A38, A41, A51: what rights say, what a user may be called, and what the image makes of the coordinator's keys."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.principals import ANONYMOUS, Principal
from headrace.security.access import Access
from headrace.security.acl_book import AclBook, host_matches, host_problem
from headrace.security.denials import Denials
from headrace.security.image import Revoked, SecurityImage
from headrace.security.login_limits import FAILURES, LoginLimits
from headrace.security.records import (
    ALL_OPERATIONS,
    Acl,
    Mode,
    ModeRecord,
    PatternType,
    Permission,
    ScramRecord,
    UserRecord,
    acl_key,
    encode,
    name_problem,
    scram_key,
    user_key,
)
from headrace.security.rights import Operation, Resource

ALICE = Principal("User", "alice")
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC, GROUP, CLUSTER = Resource.TOPIC, Resource.GROUP, Resource.CLUSTER


def acl(
    name: str,
    operation: int = READ,
    *,
    resource: Resource = TOPIC,
    pattern: PatternType = PatternType.LITERAL,
    who: str = "User:alice",
    host: str = "*",
    permission: Permission = Permission.ALLOW,
) -> Acl:
    return Acl(resource, name, pattern, who, host, int(operation), permission)


def image(*acls: Acl, supers: tuple[str, ...] = (), mode: Mode = Mode.ENFORCED) -> SecurityImage:
    made = SecurityImage()
    made.apply("mode", encode(ModeRecord(mode)))
    made.apply("super_users", encode(list(supers)))
    for each in acls:
        made.apply(acl_key(each), encode(each))
    return made


def may(
    held: SecurityImage, operation: Operation, name: str, resource: Resource = TOPIC, host: str = "10.1.2.3"
) -> bool:
    return held.decide(ALICE, host, operation, resource, name).allowed


def test_a37_nothing_is_allowed_that_no_right_allows() -> None:
    assert not may(image(), READ, "t")
    assert not may(image(acl("t", who="User:bob")), READ, "t")
    assert may(image(acl("t", who="User:*")), READ, "t")
    assert may(image(supers=("User:alice",)), READ, "t")


def test_a37_a_denial_wins_wherever_it_comes_from() -> None:
    deny = Permission.DENY
    for denial in (
        acl("t", permission=deny),
        acl("*", permission=deny),
        acl("t", ALL_OPERATIONS, permission=deny),
        acl("t", pattern=PatternType.PREFIXED, permission=deny),
        acl("t", who="User:*", permission=deny),
    ):
        assert not may(image(acl("t"), acl("t", ALL_OPERATIONS), denial), READ, "t"), denial
    assert may(image(acl("t"), acl("t", permission=deny, host="10.9.9.9")), READ, "t")
    assert may(image(acl("t", WRITE), acl("t", READ, permission=deny)), DESCRIBE, "t"), (
        "Write still implies it"
    )


@pytest.mark.parametrize("implying", [READ, WRITE, Operation.DELETE, Operation.ALTER, ALL_OPERATIONS])
def test_a37_what_implies_describe(implying: int) -> None:
    assert may(image(acl("t", implying)), DESCRIBE, "t")
    assert not may(image(acl("t", DESCRIBE)), READ, "t")
    assert may(image(acl("t", Operation.ALTER_CONFIGS)), Operation.DESCRIBE_CONFIGS, "t")
    assert not may(image(acl("t", Operation.ALTER_CONFIGS)), DESCRIBE, "t")


def test_a37_who_may_write_somewhere_may_be_idempotent() -> None:
    assert not may(image(), Operation.IDEMPOTENT_WRITE, "", CLUSTER)
    assert may(image(acl("t", WRITE)), Operation.IDEMPOTENT_WRITE, "", CLUSTER)
    assert not may(image(acl("t", READ)), Operation.IDEMPOTENT_WRITE, "", CLUSTER)
    denied = image(acl("t", WRITE), acl("*", WRITE, permission=Permission.DENY))
    assert not may(denied, Operation.IDEMPOTENT_WRITE, "", CLUSTER)


def test_a41_what_is_the_brokers_own_is_not_meant_by_everything() -> None:
    assert not may(image(acl("*"), acl("_", pattern=PatternType.PREFIXED)), READ, "__audit")
    assert not may(image(acl("*", DESCRIBE)), DESCRIBE, "__audit")
    own = acl("__audit")
    assert not may(image(own), READ, "__audit")
    assert may(image(own, acl("kafka-cluster", DESCRIBE, resource=CLUSTER)), READ, "__audit")


def test_a49_cluster_action_is_nobodys_right() -> None:
    everything = acl("kafka-cluster", ALL_OPERATIONS, resource=CLUSTER)
    assert not may(image(everything, supers=("User:alice",)), Operation.CLUSTER_ACTION, "", CLUSTER)


def test_a36_hosts_are_addresses_or_networks() -> None:
    assert host_matches("10.0.0.0/8", "10.1.2.3") and not host_matches("10.0.0.0/8", "11.1.2.3")
    assert host_matches("fe80::/10", "fe80::1") and not host_matches("10.0.0.0/8", "fe80::1")
    assert host_matches("::1", "::1") and not host_matches("10.1.2.3", "10.1.2.30")
    assert [host_problem(host) is None for host in ("*", "::1", "10.0.0.0/8", "example.com", "10.0.0.1/8")] == [
        True, True, True, False, False,
    ]  # fmt: skip


names = st.text("ab-", min_size=1, max_size=4)
acls = st.builds(
    acl,
    names | st.just("*"),
    st.sampled_from([READ, WRITE, DESCRIBE, ALL_OPERATIONS]),
    pattern=st.sampled_from(PatternType),
    who=st.sampled_from(["User:alice", "User:bob", "User:*"]),
    host=st.sampled_from(["*", "10.1.2.3", "10.0.0.0/8", "1.1.1.1"]),
    permission=st.sampled_from(Permission),
)


def plainly(held: list[Acl], operation: Operation, name: str) -> bool:
    """The same, by looking at every rule."""
    about = [
        each
        for each in held
        if each.principal in ("User:alice", "User:*")
        and host_matches(each.host, "10.1.2.3")
        and (name.startswith(each.name) if each.pattern is PatternType.PREFIXED else each.name in (name, "*"))
    ]
    implied = {READ, WRITE, Operation.DELETE, Operation.ALTER} if operation is DESCRIBE else set()
    if any(
        each.permission is Permission.DENY and each.operation in (operation, ALL_OPERATIONS) for each in about
    ):
        return False
    return any(
        each.permission is Permission.ALLOW and each.operation in {operation, ALL_OPERATIONS, *implied}
        for each in about
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(acls, max_size=12), names, st.sampled_from([READ, WRITE, DESCRIBE]), st.data())
def test_a38_the_index_says_what_a_look_at_every_rule_says(
    held: list[Acl], name: str, operation: Operation, data: st.DataObject
) -> None:
    built = image(*held)
    assert may(built, operation, name) == plainly(held, operation, name)
    gone = data.draw(st.sets(st.sampled_from(held))) if held else set()
    for each in gone:
        built.apply(acl_key(each), None)
    left = [each for each in held if each not in gone]
    assert may(built, operation, name) == plainly(left, operation, name)
    assert len(built.acls) == len(set(left))


class Clock:
    def now_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 0


def test_a38_a_verdict_is_kept_until_something_changes() -> None:
    held = image(acl("t"))
    access = Access(held, Denials(Clock()), ALICE, "10.1.2.3")
    assert access.may(READ, TOPIC, "t")
    held.apply(acl_key(acl("t")), None)
    assert not access.may(READ, TOPIC, "t")
    held.apply("mode", encode(ModeRecord(Mode.OBSERVE)))
    assert (
        not access.may(READ, TOPIC, "t") and not access.refuses(READ, TOPIC, "t") and access.sees(TOPIC, "t")
    )
    held.apply("mode", None)
    assert access.may(READ, TOPIC, "t"), "mode open asks nobody anything"


def test_a38_ten_thousand_rules_cost_a_question_no_more_than_ten() -> None:
    """By the work that is done, not by the clock: as many rules are looked at."""
    few, many = AclBook(), AclBook()
    for number in range(10):
        few.add(acl(f"t{number}"))
    for number in range(10_000):
        many.add(acl(f"t{number}", who=f"User:u{number % 100}"))
        many.add(acl(f"p{number % 97}-", pattern=PatternType.PREFIXED, who=f"User:v{number}"))
    looked = [len(list(book._about(ALICE, TOPIC, "t7"))) for book in (few, many)]
    assert looked == [1, 0]


@pytest.mark.parametrize("name", ["alice", "a.b-c_d@example.org", "Ünsal", "名前", "x" * 249, "a b"])
def test_a10_a_name(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name", ["", "x" * 250, "a,b", "a=b", "a:b", "a\nb", "a\x00", " a", "a ", "ﬁle", "\u212b", "ANONYMOUS"]
)
def test_a10_no_name(name: str) -> None:
    assert name_problem(name) is not None


def test_a9_who_is_disabled_or_deleted_is_told_of_once() -> None:
    held = image()
    key = user_key("al/ice")
    assert held.apply(key, encode(UserRecord(1))) is None
    assert held.is_enabled("al/ice")
    assert held.apply(key, encode(UserRecord(1, False))) == Revoked("al/ice")
    assert held.apply(key, None) is None
    held.apply(key, encode(UserRecord(1)))
    assert held.apply(key, None) == Revoked("al/ice")
    scram = ScramRecord(b"salt", 4096, b"stored", b"server")
    held.apply(scram_key("al/ice", "SCRAM-SHA-256"), encode(scram))
    assert held.scram == {"al/ice": {"SCRAM-SHA-256": scram}}
    held.apply(scram_key("al/ice", "SCRAM-SHA-256"), None)
    assert held.scram == {}


def test_a9_a_disabled_users_verdicts_are_no_whatever_rights_it_has() -> None:
    held = image(acl("t"), supers=("User:alice",))
    held.apply(user_key("alice"), encode(UserRecord(1, False)))
    assert not may(held, READ, "t")


@pytest.mark.parametrize("raw", [b"", b"{}", b"[1]", b'{"mode": "wide open"}', b"\xff", b'"x"'])
@pytest.mark.parametrize(
    "key", ["mode", "super_users", "users/a", "scram/a/SCRAM-SHA-256", "acls/" + "0" * 32]
)
def test_a51_a_value_that_is_damaged_is_told_and_gives_nobody_anything(key: str, raw: bytes) -> None:
    held = image(mode=Mode.ENFORCED)
    held.apply(key, raw)
    legal = key == "users/a" and raw.startswith(b"{")
    assert (key in held.unreadable) is not legal
    assert held.enforces and not may(held, READ, "t")
    assert held.apply(key, None) is None or legal
    assert key not in held.unreadable


def test_a51_a_damaged_mode_is_the_strictest_also_after_a_restart() -> None:
    held = SecurityImage()
    held.load({"mode": b"\xff"})
    assert held.guards and held.enforces


def test_a51_a_damaged_user_is_disabled_and_its_connections_end() -> None:
    held = image(acl("t"))
    held.apply(user_key("alice"), encode(UserRecord(1)))
    assert may(held, READ, "t")
    assert held.apply(user_key("alice"), b"\xff") == Revoked("alice")
    assert not may(held, READ, "t")


def test_a51_a_denial_that_was_damaged_goes_on_denying() -> None:
    denial = acl("t", permission=Permission.DENY)
    held = image(acl("*"), denial)
    assert may(held, READ, "u") and not may(held, READ, "t")
    held.apply(acl_key(denial), b"\xff")
    assert may(held, READ, "u") and not may(held, READ, "t"), "it stays as it was known"
    # A broker that starts now has never known it: it may have been about anything.
    started = image(acl("*"), supers=("User:root",))
    started.apply(acl_key(denial), b"\xff")
    assert not may(started, READ, "t") and not may(started, READ, "u")
    assert started.decide(Principal("User", "root"), "1.2.3.4", READ, Resource.TOPIC, "t").allowed
    started.apply(acl_key(denial), None)
    assert may(started, READ, "t"), "deleted, it says nothing any more"


def test_a51_a_right_under_another_ones_key_is_damaged() -> None:
    held = image()
    held.apply(acl_key(acl("t")), msgspec.json.encode(acl("u")))
    assert held.unreadable and not may(held, READ, "u")


def test_a61_who_guesses_is_shut_out_for_longer_each_time_and_a_user_is_never_locked() -> None:
    limits = LoginLimits()
    delays = [limits.failed("10.0.0.1", "alice", 0) for _ in range(FAILURES)]
    assert delays == sorted(delays) and delays[0] == 100 and max(delays) <= 3000
    assert limits.is_shut_out("10.0.0.1", 59_999) and not limits.is_shut_out("10.0.0.1", 60_000)
    assert not limits.is_shut_out("10.0.0.2", 0), "another address, the same user"
    for _ in range(FAILURES):
        limits.failed("10.0.0.1", "alice", 70_000)
    assert limits.is_shut_out("10.0.0.1", 70_000 + 119_000) and not limits.is_shut_out("10.0.0.1", 190_000)
    limits.succeeded("10.0.0.3", "alice")
    assert limits.failed("10.0.0.3", "alice", 0) == 100, "who knows the password does not wait"


def test_a61_a_login_of_ones_own_clears_nothing_of_what_was_tried_on_others() -> None:
    limits = LoginLimits()
    for number in range(FAILURES):
        assert not limits.is_shut_out("10.0.0.1", number)
        limits.failed("10.0.0.1", "admin", number)
        limits.succeeded("10.0.0.1", "mallory")
    assert limits.is_shut_out("10.0.0.1", 59_999)
    limits.succeeded("10.0.0.1", "mallory")
    assert limits.is_shut_out("10.0.0.1", 59_999), "nor on a connection that was open before"
    for _ in range(FAILURES):
        limits.failed("10.0.0.1", "admin", 70_000)
    limits.succeeded("10.0.0.1", "mallory")
    assert limits.is_shut_out("10.0.0.1", 70_000 + 119_000), "twice as long all the same"
    for _ in range(FAILURES):
        limits.failed("10.0.0.1", "admin", 2_000_000)
    assert not limits.is_shut_out("10.0.0.1", 2_060_001), "until they have been quiet for long"


def test_a61_one_network_of_v6_is_one_address_and_this_machine_is_always_heard() -> None:
    limits = LoginLimits()
    for number in range(FAILURES):
        limits.failed(f"2001:db8::{number:x}", "alice", 0)
        limits.failed("127.0.0.1", "alice", 0)
        limits.failed("::1", "alice", 0)
    assert limits.is_shut_out("2001:db8::ffff", 1) and not limits.is_shut_out("2001:db8:0:1::1", 1)
    assert not limits.is_shut_out("127.0.0.1", 1) and not limits.is_shut_out("::1", 1)


def test_a61_the_tables_are_bounded() -> None:
    limits = LoginLimits()
    for number in range(12_000):
        limits.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", f"u{number}", 0)
    assert len(limits._addresses) == len(limits._users) == 10_000
    denials = Denials(Clock())
    for number in range(12_000):
        denials.note(ANONYMOUS, "h", READ, TOPIC, f"t{number}")
        denials.nameless("h", f"c{number}")
    assert len(list(denials.since(0))) == len(list(denials.nameless_since(0))) == 10_000
