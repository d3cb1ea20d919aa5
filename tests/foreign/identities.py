"""Identities: docs/format.md, "Identities"."""

from encoding import choice, encode, field, hashed, instance_id, need, plain, typed
from records import CHANGE, CREATE, IDENTITY, Action, commitment, lines
from signatures import check_key, verified

LINE_MAX, REASON_MAX, POLICIES_MAX = 16_384, 1_048_576, 64
ACTIVE, DEACTIVATED, TERMINATED = 0, 1, 2


def instance(value):
    check_key(field(value, 0, "key"))
    return {0: value[0], 1: field(value, 1, "key"), 2: field(value, 2, "key")}


def policies(value):
    need(len(value) <= POLICIES_MAX, "there are too many policies")
    kept = []
    for policy in value:
        name = commitment(field(policy, 0, "map"))
        need(name[1] <= LINE_MAX, "a policy's name is too long")
        kept.append({0: policy[0], 1: field(policy, 1, "uint")})
    return kept


class Account:
    """An agent's identity at a version, as a chain of records makes it."""

    def __init__(self, signed):
        action = Action(signed)
        need(action.owner is not None and action.body == CREATE, "an identity does not begin with its first record")
        need(action.object is None and action.position is None, "a first record names an object or a position")
        check_key(action.owner)
        verified("action", signed, action.owner)
        genesis = action.parts[0]
        field(genesis, 0, "hash")
        self.agent = hashed("kwoon 1 agent id", action.payload)
        self.version, self.record, self.owner, self.status = 1, self.agent, action.owner, ACTIVE
        first = instance(field(genesis, 7, "map"))
        self.instances = [first]
        self.was_inactive = False
        self.profile = {0: field(genesis, 3, "map"), 3: policies(field(genesis, 6, "array"))}
        self.profile |= {5: field(genesis, 1, "uint"), 6: first[2]}
        for ours, theirs, kind in ((1, 4, "map"), (2, 5, "map"), (4, 2, "hash")):
            value = field(genesis, theirs, kind, optional=True)
            if value is not None:
                self.profile[ours] = value
        self.contents = self.check_lines()

    def check_lines(self):
        found = lines(self.profile, 0, 1, 2) + [commitment(policy[0]) for policy in self.profile[3]]
        need(all(length <= LINE_MAX for _, length in found), "a line of an identity is too long")
        reason = lines(self.profile, 7)
        need(all(length <= REASON_MAX for _, length in reason), "a reason is too long")
        return found + reason

    def follow(self, signed):
        """The next record of the chain."""
        action = Action(signed)
        need(action.owner == self.owner, "a record is not its owner's")
        verified("action", signed, self.owner)
        need(action.body == CHANGE and action.object == (IDENTITY, self.agent), "a record is of another identity")
        change = action.parts[0]
        need(field(change, 0, "uint") == self.version + 1, "a record's version does not follow")
        need(field(change, 1, "hash") == self.record, "a record does not follow on the one before")
        need(self.status != TERMINATED, "a record follows a termination")
        number, parts = choice(
            field(change, 2, "array"), {0: ["map"], 1: ["map"], 2: ["map", "bytes"], 3: ["hash", "array"], 4: ["key"]}
        )
        need(number != 4, "a change of the home host is refused")
        self.version += 1
        need(self.version <= 4_096, "there are too many versions")
        need(self.version <= 4_080 or number in (1, 3), "the last versions are kept for what ends something")
        if number == 0:
            self.change_profile(parts[0])
        elif number == 1:
            status = plain(field(parts[0], 0, "uint"), 2)
            need(status != self.status, "a change of status changes nothing")
            self.status = status
            self.was_inactive |= status != ACTIVE
            reason = field(parts[0], 1, "map", optional=True)
            self.profile.pop(7, None)
            if reason is not None:
                self.profile[7] = reason
        elif number == 2:
            added = instance(parts[0])
            need(len(self.instances) < 64, "there are too many instances")
            need(all(instance_id(known) != instance_id(added) for known in self.instances), "an instance is there")
            self.instances.append(added)
        else:
            kept = [known for known in self.instances if instance_id(known) != parts[0]]
            need(len(kept) < len(self.instances), "an instance that is not there is revoked")
            self.instances = kept
        self.record = hashed("kwoon 1 agent id", action.payload)
        self.contents = self.check_lines()
        return action

    def change_profile(self, change):
        need(any(key in change for key in (0, 1, 2, 3)), "a profile changes nothing")
        for ours, theirs in ((1, 0), (2, 1)):
            value = field(change, theirs, "map", optional=True)
            if value is not None:
                self.profile[ours] = value
        listed = field(change, 2, "array", optional=True)
        if listed is not None:
            self.profile[3] = policies(listed)
        owner = field(change, 3, "map", optional=True)
        if owner is not None:
            key, consent = check_key(field(owner, 0, "key")), field(owner, 1, "bytes")
            payload = verified("consent", consent, key)
            expected = {0: 1, 1: self.agent, 2: self.version, 3: key}
            need(payload == encode(expected), "a consent is not over this change")
            self.owner = key

    def copy(self):
        other = object.__new__(Account)
        other.__dict__.update(self.__dict__)
        other.instances, other.profile = list(self.instances), dict(self.profile)
        return other

    def lives_on(self, host):
        return any(each[2] == host for each in self.instances)

    def check_actor(self, action):
        """The action is signed by an instance of this agent, which is active."""
        need(action.agent == self.agent, "an action is another agent's")
        known = [each for each in self.instances if instance_id(each) == action.instance]
        need(known, "the instance is not known")
        verified("action", action.signed, known[0][0])
        need(self.status == ACTIVE, "the agent is not active")

    def encoded(self):
        return {0: self.version, 1: self.record, 2: self.owner, 3: self.status, 4: self.instances}

    def identity_set(self):
        return [0, self.agent, self.encoded(), self.profile]

    def account_set(self):
        return [1, self.agent, self.encoded()]


def chain(records, known=None):
    """The account after these records, which follow on what is known."""
    need(records, "there are no identity records")
    account = known.copy() if known else None
    for signed in records:
        typed(signed, "bytes")
        if account is None:
            account = Account(signed)
        else:
            account.follow(signed)
    return account
