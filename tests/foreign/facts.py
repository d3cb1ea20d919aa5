"""Facts, seals, carried outcomes and whole logs: docs/format.md, "Facts", "Outcomes" and "Effects"."""

from encoding import (
    Unknown,
    Wrong,
    check_schema,
    choice,
    decode,
    encode,
    field,
    hashed,
    head_after,
    memory_blind,
    memory_id,
    need,
    running_digest,
    typed,
)
from identities import Account, chain
from records import (
    ENTRY_POST,
    IDENTITY,
    ISSUE,
    JOIN,
    MEMORY,
    MEMORY_CREATE,
    PUBLICATION,
    PUBLISH,
    THREAD,
    THREAD_CREATE,
    UNPUBLISH,
    UPDATE,
    WITHDRAW,
    Action,
    entry,
    grant,
    object_id,
    text,
    version,
)
from signatures import check_key, verified

VALIDITY_MAX_MS = 90 * 86_400_000
AHEAD_MAX_MS = 10 * 60_000
ZERO = bytes(32)

CAUSES = {0: ["bytes"], 1: ["array"], 2: ["hash", "array"], 3: ["map"], 4: ["map"], 5: []}
ACTION, EXPIRY, ACCOUNT, EPOCH, CONSEQUENCE, BEGUN = range(6)


class Fact:
    """A fact, read but not yet verified."""

    def __init__(self, data):
        record = decode(data)
        check_schema(record)
        self.hash = hashed("kwoon 1 fact", data)
        self.object = object_id(field(record, 1, "array"))
        self.epoch, self.index = field(record, 2, "uint"), field(record, 3, "uint")
        self.previous, self.log_time = field(record, 4, "hash"), field(record, 5, "uint")
        self.cause, self.parts = choice(field(record, 6, "array"), CAUSES)
        self.evidence, self.digest = field(record, 7, "array"), field(record, 8, "hash")
        self.opening = field(record, 9, "map", optional=True)
        self.action = Action(self.parts[0]) if self.cause == ACTION else None


def read_seal(record, sequencer):
    """The fields of a stored seal that its sequencer signed."""
    signatures = typed(decode(record), "array")
    need(1 <= len(signatures) <= 16, "a seal has no signature or too many")
    seal = decode(verified("seal", typed(signatures[0], "bytes"), sequencer))
    check_schema(seal)
    field(seal, 5, "uint")
    field(seal, 6, "uint")
    return {
        "object": object_id(field(seal, 1, "array")),
        "epoch": field(seal, 2, "uint"),
        "index": field(seal, 3, "uint"),
        "head": field(seal, 4, "hash"),
    }


def read_outcome(value, sequencer):
    """A carried outcome, verified under its sequencer: the fact and its effects."""
    fact, effects = Fact(field(value, 0, "bytes")), field(value, 1, "bytes")
    before, later = field(value, 2, "hash"), field(value, 3, "array")
    need(running_digest(before, fact.index, effects) == fact.digest, "the effects of an outcome are others")
    need(len(later) <= 16_384, "an outcome is too far from its seal")
    head = head_after(fact.previous, fact.hash)
    for following in later:
        head = head_after(head, typed(following, "hash"))
    seal = read_seal(field(value, 4, "bytes"), sequencer)
    expected = {"object": fact.object, "epoch": fact.epoch, "index": fact.index + len(later), "head": head}
    need(seal == expected, "an outcome's seal seals something else")
    return fact, typed(decode(effects), "array")


def effects_like(effects, number, *parts):
    return [effect for effect in effects if effect[0] == number and tuple(effect[1 : 1 + len(parts)]) == parts]


class Log:
    """A log, verified fact by fact."""

    def __init__(self, header):
        self.object, self.epoch = object_id(field(header, 2, "array")), field(header, 3, "uint")
        self.heads, self.log_time, self.digest = [], 0, ZERO
        self.sequencer, self.sealed, self.seals = None, None, 0
        self.accounts, self.requests, self.admissions, self.contents = {}, set(), {}, set()
        # Of a memory: its number of versions, the current one, whether it is public and ever was, and whether it ended.
        self.versions, self.current, self.public, self.ever_public, self.ended = 0, None, False, False, False
        self.author, self.source = None, -1

    def add(self, data):
        fact = Fact(data)
        head = self.heads[-1] if self.heads else ZERO
        need(fact.object == self.object, "a fact is of another log")
        need(fact.epoch == self.epoch == 0, "a fact is of another epoch")
        need(fact.index == len(self.heads) and fact.previous == head, "the chain is broken")
        need((fact.opening is not None) == (fact.index == 0), "an opening is missing, or in the wrong place")
        need(fact.log_time >= self.log_time, "log time goes back")
        need(len(fact.evidence) <= (16 if fact.cause == ACTION else 0), "there is evidence where there is none")
        if fact.opening is not None:
            self.open(fact)
        effects = [self.action, self.expiry, self.account, self.change_epoch, self.consequence, self.begun][fact.cause](
            fact
        )
        if effects is not None:
            expected = running_digest(self.digest, fact.index, encode(effects))
            need(fact.digest == expected, "the effects derived here are others")
        self.digest, self.log_time = fact.digest, fact.log_time
        self.heads.append(head_after(head, fact.hash))

    def open(self, fact):
        rules = field(fact.opening, 0, "uint")
        if rules != 1:
            raise Unknown(f"rules version {rules}")
        self.sequencer = check_key(field(fact.opening, 1, "key"))
        self.creator = field(fact.opening, 2, "array")
        self.origin = field(fact.opening, 3, "map", optional=True)
        self.blind = field(fact.opening, 4, "hash", optional=True)
        need(fact.cause == BEGUN or self.origin is None, "an origin stands where there is none")
        need((self.blind is not None) == (self.object[0] == PUBLICATION), "a blind stands where there is none")
        need(self.object[0] in (IDENTITY, MEMORY, PUBLICATION, THREAD), "rules version 1 has no such objects")

    def creators_account(self):
        account = chain(self.creator)
        need(account.lives_on(self.sequencer), "the creator has no instance on the sequencer's host")
        self.accounts[account.agent] = account
        return account

    # -------------------------------------------------------------------------------------------- causes

    def action(self, fact):
        action = fact.action
        need(action.issued_at <= fact.log_time + AHEAD_MAX_MS, "an action was issued in the future")
        need(action.issued_at <= action.expires_at <= action.issued_at + VALIDITY_MAX_MS, "an action is valid too long")
        need(fact.log_time < action.expires_at, "an action has expired")
        need(action.request not in self.requests, "a request is sealed a second time")
        need(all(needed in self.requests for needed in action.needs), "an action needs what is not there")
        self.check_position(fact)
        self.requests.add(action.request)
        if self.object[0] == IDENTITY:
            return self.identity_record(fact)
        before = []
        if fact.index == 0:
            before = [self.creators_account().account_set()]
            need(action.object is None, "an action that opens a log names an object")
        else:
            need(action.object == self.object, "an action is on another object")
        account = self.accounts.get(action.agent)
        need(account is not None, "the actor is not known in this log")
        account.check_actor(action)
        self.check_evidence(fact)
        self.contents.update(action.contents)
        if self.object[0] == THREAD:
            return self.thread_action(fact)
        need(self.object[0] == MEMORY, "an action stands in a log of consequences")
        return before + self.memory_action(fact)

    def check_position(self, fact):
        position = fact.action.position
        if position is None:
            second = self.object[0] == MEMORY and fact.index == 1
            need(fact.index == 0 or second, "an action names no position")
            return
        need(fact.index > 0, "an action that opens a log names a position")
        index = field(position, 1, "uint")
        need(field(position, 0, "uint") == self.epoch, "an action is of another epoch")
        need(
            index < len(self.heads) and field(position, 2, "hash") == self.heads[index],
            "an action builds on another log",
        )

    def identity_record(self, fact):
        if fact.index == 0:
            need(not self.creator, "an identity's log has no creator")
            account = Account(fact.action.signed)
            need(self.object[1] == account.agent, "the identity is another's")
            need(account.instances[0][2] == self.sequencer, "the home host is another")
        else:
            account = chain([fact.action.signed], self.accounts[self.object[1]])
        self.accounts[account.agent] = account
        self.contents.update(account.contents)
        return [account.identity_set()]

    def check_evidence(self, fact):
        """Evidence verifies, and a pin of another's memory has some."""
        shows = []
        for piece in fact.evidence:
            _, (outcome, records) = choice(piece, {0: ["map", "array"]})
            account = chain(records)
            shows.append((account.agent, self.publication_of(outcome, account)))
        if fact.action.body != ENTRY_POST:
            return
        pinned = entry(fact.action.parts[0])["pin"]
        if pinned and pinned["author"] != fact.action.agent:
            wanted = [pinned["memory"], pinned["author"], pinned["version"]]
            shown_so = [
                effect
                for author, effects in shows
                if author == pinned["author"]
                for effect in effects_like(effects, 15, *wanted)
                if text(effect[4][0]) == pinned["text"]
            ]
            need(shown_so, "the evidence does not show what is pinned")

    def publication_of(self, outcome, account):
        reasons = []
        for host in {each[2] for each in account.instances}:
            try:
                fact, effects = read_outcome(outcome, host)
            except Wrong as wrong:
                reasons.append(wrong)
                continue
            need(fact.object[0] == PUBLICATION, "evidence is of no publication")
            return effects
        raise reasons[0] if reasons else Wrong("evidence is sealed by no host of the author's")

    def thread_action(self, fact):
        action = fact.action
        if fact.index == 0:
            need(action.body == THREAD_CREATE, "a thread does not begin with its creation")
            need(self.object[1] == hashed("kwoon 1 thread id", action.request, self.sequencer), "the thread is another")
            granted = field(action.parts[0], 1, "map", optional=True)
        else:
            need(action.body in range(41, 57), "an action stands in the wrong log")
            granted = action.parts[0] if action.body == ISSUE else None
        if granted is not None:
            admission, key = grant(granted)
            self.admissions = {admission: key}
        if action.body == JOIN:
            admission, use = action.parts
            need(admission in self.admissions, "an admission is not the valid one")
            expected = encode({0: 1, 1: self.object[1], 2: action.agent, 3: action.request})
            need(verified("admission", use, self.admissions[admission]) == expected, "an admission is used by another")
        # What follows from it is for the rules to say.
        return None

    def memory_action(self, fact):
        action = fact.action
        if fact.index == 0:
            need(action.body == MEMORY_CREATE, "a memory does not begin with its creation")
            blind = memory_blind(action.request, self.sequencer)
            need(self.object[1] == memory_id(action.agent, blind), "the memory is another")
            self.author, self.versions, self.current = action.agent, 1, action.parts[0]
            return [[10, self.object[1], self.author], [11, 1, self.current, False]]
        need(action.agent == self.author and not self.ended, "a memory is changed by another, or after its end")
        if action.body == UPDATE:
            need(action.parts[0].get(1, self.versions) == self.versions, "an update expects another version")
            self.versions, self.current = self.versions + 1, action.parts[0][0]
            return [[11, self.versions, self.current, self.public]]
        need(action.body in (PUBLISH, UNPUBLISH, WITHDRAW), "an action stands in the wrong log")
        if action.body == PUBLISH:
            need(not self.public, "an action changes nothing")
            self.public = self.ever_public = True
            return [[12, self.versions, self.current]]
        if action.body == UNPUBLISH:
            need(self.public, "an action changes nothing")
            self.public = False
            return [[13]]
        self.ended, self.public = True, False
        return [[14, self.ever_public]]

    def begun(self, fact):
        need(
            fact.index == 0 and self.object[0] == MEMORY and self.origin is not None,
            "a beginning is in the wrong place",
        )
        origin, effects = read_outcome(field(self.origin, 0, "map"), field(self.origin, 1, "key"))
        action = origin.action
        need(origin.object[0] == THREAD and action is not None and action.body == ENTRY_POST, "the origin is no entry")
        said = entry(action.parts[0])
        need(action.agent is not None and said["new"] is not None, "the origin brings no memory forth")
        blind = memory_blind(action.request, origin.object[1])
        need(self.object[1] == memory_id(action.agent, blind), "the origin brought another memory forth")
        posted = [effect[1] for effect in effects_like(effects, 26)]
        says_so = [
            each
            for each in posted
            if each[1] == action.request
            and each[4] is True
            and each[3][0] == self.object[1]
            and each[3][2] == said["new"]
        ]
        need(says_so, "the origin's effects say something else")
        account = self.creators_account()
        need(account.agent == action.agent, "the memory is begun by another")
        account.check_actor(action)
        self.author, self.versions = action.agent, 1
        self.current = {0: said["new"], 3: []}
        if said["summary"] is not None:
            self.current[2] = said["summary"]
        self.contents.update(said["contents"])
        return [account.account_set(), [10, self.object[1], self.author], [11, 1, self.current, False]]

    def expiry(self, fact):
        need(self.object[0] == THREAD and fact.index > 0, "an expiry stands where nothing is due")
        choice(fact.parts[0], {0: ["hash"], 1: ["hash"]})
        return None

    def account(self, fact):
        agent, records = fact.parts
        need(fact.index > 0 and self.object[0] != IDENTITY, "an account stands in the wrong place")
        need(len(records) <= 256, "an account has too many records")
        account = chain(records, self.accounts.get(agent))
        need(account.agent == agent, "an account is another's")
        self.accounts[agent] = account
        # In a thread memberships may end with it, which is for the rules to say.
        return None if self.object[0] == THREAD else [account.account_set()]

    def change_epoch(self, fact):
        raise Unknown("a change of epoch")

    def consequence(self, fact):
        need(self.object[0] == PUBLICATION, "a consequence stands in the wrong log")
        source, effects = read_outcome(fact.parts[0], self.sequencer)
        action = source.action
        need(source.object[0] == MEMORY and action is not None, "a consequence follows from no action on a memory")
        memory, before = source.object[1], []
        need(self.object[1] == hashed("kwoon 1 publication id", memory), "a consequence is of another memory")
        if fact.index == 0:
            account = self.creators_account()
            self.author = account.agent
            need(memory == memory_id(self.author, self.blind), "the memory is another's")
            before = [account.account_set()]
        need(not self.ended and source.index > self.source, "a consequence says nothing new")
        self.source = source.index
        self.accounts[self.author].check_actor(action)
        return before + self.public_effects(memory, action, effects, source.index)

    def public_effects(self, memory, action, effects, index):
        need(len(effects) == 1, "a consequence follows from something else")
        number, *parts = effects[0]
        if (action.body, number) == (PUBLISH, 12) or ((action.body, number) == (UPDATE, 11) and parts[2] is True):
            if action.body == UPDATE:
                need(parts[1] == action.parts[0][0], "a consequence says another text")
            self.contents.update(version(parts[1]))
            return [[15, memory, self.author, parts[0], parts[1], index]]
        if (action.body, number) == (UNPUBLISH, 13):
            return [[16, memory, False, index]]
        need((action.body, number) == (WITHDRAW, 14) and parts[0] is True, "a consequence says nothing to the public")
        self.ended = True
        return [[16, memory, True, index]]

    # -------------------------------------------------------------------------------------------- seals

    def seal(self, record):
        need(self.heads, "a seal stands before any fact")
        index = len(self.heads) - 1
        need(self.sealed != index, "there are two seals for one place")
        seal = read_seal(record, self.sequencer)
        expected = {"object": self.object, "epoch": self.epoch, "index": index, "head": self.heads[-1]}
        need(seal == expected, "a seal seals something else")
        self.sealed, self.seals = index, self.seals + 1
