"""torch's own TCPStore client, operation by operation, against the store that rlaunch holds and against torch's own servers.

    rlaunch -n 2 --master-store agent python3 store_ops.py

Rank 0 does all of it. Every case is run against each server with a store client made for it, and what it sees must be the same, down
to the kind of error. Where rlaunch means to differ, or torch's two servers do not agree, the case says so: `ours` is then what must
be seen at rlaunch's. Operations that this torch has not are left out, and counted.
"""

import datetime
import os
import re
import sys
import threading
import time

import torch
import torch.distributed as dist

ADDR, PORT = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
SOON = datetime.timedelta(milliseconds=300)
LONG = datetime.timedelta(seconds=60)
EVERY_BYTE = bytes(range(256))
MIB = 1 << 20
CASES = []


class Server:
    """Address of a server, and its name."""

    def __init__(self, name, addr, port):
        self.name, self.addr, self.port = name, addr, port

    def client(self, timeout=LONG):
        """Opens another connection."""
        # torch 1.13 cannot connect within less than a second.
        store = dist.TCPStore(self.addr, self.port, 1, False, LONG)
        store.set_timeout(timeout)
        return store


def case(needs="", **ours):
    """A case: `needs` are methods that a torch may not have; `ours` may say what rlaunch answers instead, and why torch does not."""

    def add(function):
        CASES.append((function, needs.split(), ours))
        return function

    return add


def outcome(do, *words):
    """The result of a call, or its error, without the parts that differ between runs."""
    try:
        return do(*words)
    except Exception as error:  # pylint: disable=broad-except
        return failure(error)


def failure(error):
    """The kind of an error: too late, cut off, or refused by the client itself."""
    text = str(error)
    if re.search("timeout|timed out", text, re.IGNORECASE):
        return "too late"
    if re.search("reset by peer|Broken pipe|Connection was likely closed|got 0 bytes|recv|unexpected end|Failed to recv", text):
        return "cut off"
    return f"{type(error).__name__}: {text.splitlines()[0][:60]}"


def in_thread(do, *words):
    """Starts a call. The returned function waits for its outcome."""
    found = []
    thread = threading.Thread(target=lambda: found.append(outcome(do, *words)), daemon=True)
    thread.start()

    def join(again=lambda: None):
        while thread.is_alive():
            again()
            thread.join(0.01)
        return found[0]

    return join


@case()
def keys_are_counted(server):
    store = server.client()
    seen = [store.num_keys()]
    store.set("counted", "1")
    store.add("counted/too", 1)
    return seen + [store.num_keys(), store.delete_key("counted"), store.num_keys()]


@case()
def a_value_comes_back_as_it_was(server):
    store, other = server.client(), server.client()
    seen = []
    for number, value in enumerate(["text", "", "\0", "grüße", EVERY_BYTE, b"", b"\0" * 1000]):
        store.set(f"value/{number}", value)
        seen.append(other.get(f"value/{number}"))
    store.set("value/0", "changed")
    return seen, other.get("value/0")


@case()
def keys_may_be_anything(server):
    store = server.client()
    seen = []
    for key in ["", "a b", "ä/ö", "k" * 1000, "init/", "/", "x\0y"]:
        store.set(key, f"is {key[:9]}")
        seen.append((store.get(key), store.delete_key(key), store.delete_key(key)))
    return seen


@case()
def what_is_not_there_is_waited_for_in_vain(server):
    store = server.client()
    store.set("there", "1")
    short = server.client(SOON)
    seen = [
        outcome(short.get, "never"),
        outcome(store.wait, ["never"], SOON),
        outcome(store.wait, ["there", "never"], SOON),
        outcome(store.wait, ["there"], SOON),
        outcome(store.wait, [], SOON),
    ]
    # The connection still works.
    return seen, store.add("after", 7), short.get("there")


@case(ours=([5, 10], b"late"), why="torch 1.13 does not say that it gives up to wait, and its server answers long after")
def a_wait_that_was_given_up_is_not_answered(server):
    store, other = server.client(), server.client()
    outcome(store.wait, ["late"], SOON)
    seen = [outcome(store.add, "after a wait", 5)]
    other.set("late", "late")
    other.get("late")
    return seen + [outcome(store.add, "after a wait", 5)], outcome(store.get, "late")


def wake(server, ways):
    seen = []
    for number, way in enumerate(ways):
        store, other, key = server.client(), server.client(), f"woken/{number}"
        waiting = in_thread(store.wait, [key], LONG)
        getting = in_thread(server.client().get, key)
        way(other, key)
        seen.append((waiting(), getting()))
        other.delete_key(key)
    return seen


@case()
def waiter_is_woken(server):
    return wake(server, [lambda s, k: s.set(k, "v"), lambda s, k: s.add(k, 1)])


@case("append multi_set")
def waiter_is_woken_by_append_and_multi_set(server):
    return wake(server, [lambda s, k: s.append(k, "v"), lambda s, k: s.multi_set([k, k + "2"], ["v", "w"])])


@case(ours=[(None, b"v")], why="1.13 and torch's older server wake nobody when a comparison makes a key")
def waiter_is_woken_by_a_comparison(server):
    return wake(server, [lambda s, k: s.compare_set(k, "", "v")])


@case()
def all_of_several_keys_are_waited_for(server):
    store, other = server.client(), server.client()
    keys = [f"several/{n}" for n in range(1000)]
    waiting = in_thread(store.wait, keys, LONG)
    for key in reversed(keys):
        other.set(key, "1")
    return waiting(), store.num_keys() > 1000, [store.delete_key(key) for key in keys].count(True)


@case(ours="too late", why="a comparison that set nothing wakes those who wait for the key, though it is not there")
def a_comparison_that_sets_nothing_wakes_nobody(server):
    store, other = server.client(), server.client()
    waiting = in_thread(store.wait, ["not compared"], SOON)
    return waiting(lambda: other.compare_set("not compared", "something", "else"))


@case()
def numbers_are_text(server):
    store = server.client()
    seen = [store.add("n", by) for by in [1, -5, 0, 1 << 62, -(1 << 62)]]
    store.set("given", "10")
    return seen, store.get("n"), store.add("given", 5), store.get("given"), store.add("new", 0), store.get("new")


@case()
def many_add_at_a_time(server):
    stores = [server.client() for _ in range(4)]
    every = [in_thread(lambda s: [s.add("many", 1) for _ in range(250)][-1], store) for store in stores]
    return max(join() for join in every), stores[0].get("many")


@case(ours=["cut off"] * 4, why="std::stoll takes digits before anything; and an overflow is undefined there")
def what_is_no_number_is_not_added_to(server):
    seen = []
    for value in ["word", "12 words", " 12", str((1 << 63) - 1)]:
        store = server.client()
        store.set("no number", value)
        seen.append(outcome(store.add, "no number", 1))
    return seen


@case("check")
def it_says_what_is_there(server):
    store = server.client()
    store.set("here", "")
    return [store.check(keys) for keys in (["here"], ["nowhere"], ["here", "nowhere"], ["here", "here"], [])]


@case()
def comparisons_set(server):
    store = server.client()
    store.set("c", "1")
    seen = [
        store.compare_set("c", "1", "2"),
        store.compare_set("c", "1", "3"),
        store.compare_set("c", "", "4"),
        store.compare_set("c", "2", ""),
        store.compare_set("c", "", "5"),
        store.compare_set("c/missing", "x", "y"),
        store.compare_set("c/missing", "", "z"),
    ]
    return seen, store.get("c"), store.get("c/missing")


@case()
def what_is_deleted_is_gone(server):
    store, short = server.client(), server.client(SOON)
    store.set("d", "1")
    seen = [store.delete_key("d"), store.delete_key("d"), store.delete_key("d/never"), outcome(short.get, "d")]
    store.set("d", "2")
    return seen, store.get("d")


@case("append")
def values_grow(server):
    store = server.client()
    for piece in ["a", "", "bc", EVERY_BYTE]:
        store.append("grown", piece)
    store.append("grown/empty", "")
    store.set("grown/set", "1")
    store.append("grown/set", "2")
    return store.get("grown"), store.get("grown/empty"), store.get("grown/set"), store.add("grown/set", 1)


@case("multi_get multi_set")
def several_at_once(server):
    store, short = server.client(), server.client(SOON)
    store.multi_set(["m/1", "m/2", "m/3"], ["a", "", EVERY_BYTE])
    seen = [store.multi_get(["m/3", "m/1", "m/2", "m/1"]), outcome(store.multi_get, []), outcome(store.multi_set, [], [])]
    seen += [outcome(short.multi_get, ["m/1", "m/never"]), outcome(store.multi_set, ["m/1"], ["a", "b"])]
    keys = [f"m/many/{n}" for n in range(2000)]
    store.multi_set(keys, [key * 3 for key in keys])
    return seen, store.multi_get(keys) == [(key * 3).encode() for key in keys]


@case("queue_push queue_pop queue_len")
def queues_are_first_in_first_out(server):
    store, other, short = server.client(), server.client(), server.client(SOON)
    for value in ["1", "", EVERY_BYTE, "1"]:
        store.queue_push("q", value)
    seen = [other.queue_len("q"), outcome(other.wait, ["q"], SOON), [other.queue_pop("q") for _ in range(4)]]
    seen += [other.queue_len("q"), other.queue_len("q/never"), outcome(short.queue_pop, "q")]
    seen += [outcome(other.queue_pop, "q", False), outcome(other.wait, ["q"], SOON), other.check(["q"])]
    waiting = in_thread(other.queue_pop, "q")
    store.queue_push("q", "woken")
    return seen, waiting(), store.queue_len("q")


@case(
    "queue_push queue_pop queue_len",
    ours=([b"a", b"b", b"c", b"d"], 0),
    why="torch's older server forgets one of several who wait, when several are pushed one upon the other: it waits until its time is over",
)
def each_push_is_for_one(server):
    stores = [server.client() for _ in range(4)]
    waiting = [in_thread(store.queue_pop, "each") for store in stores]
    pusher = server.client()
    for value in "abcd":
        pusher.queue_push("each", value)
    return sorted(join() for join in waiting), pusher.queue_len("each")


@case("queue_push queue_pop queue_len", ours=[True, 0], why="torch counts no queue as a key that can be deleted, and keeps it")
def a_deleted_key_takes_its_queue_along(server):
    store = server.client()
    store.queue_push("q/deleted", "1")
    return [store.delete_key("q/deleted"), store.queue_len("q/deleted")]


@case("list_keys")
def keys_are_listed(server):
    store = server.client()
    for key in ["l/b", "l/a", "l/c"]:
        store.set(key, "1")
    store.delete_key("l/b")
    listed = store.list_keys()
    return sorted(key for key in listed if "l/" in key and len(key) < 6), "init/" in listed


@case("barrier")
def barriers_hold_until_all_are_there(server):
    stores = [server.client() for _ in range(4)]
    seen = []
    for turn in range(3):
        waiting = [in_thread(store.barrier, f"b/{turn}", 4, LONG) for store in stores]
        seen.append([join() for join in waiting])
    store = stores[0]
    # A barrier of one rank, one that has ended, one with a missing rank, and the count of each.
    seen += [outcome(store.barrier, "b/1 of 1", 1, LONG), outcome(store.barrier, "b/0", 4, LONG)]
    seen += [outcome(store.barrier, "b/late", 2, SOON), store.get("b/late"), store.get("b/0")]
    return seen, outcome(store.barrier, "b/late", 2, LONG), store.get("b/late")


@case(ours=[8 * MIB, "cut off"], why="1.13 and torch's older server know no limit")
def values_have_eight_mebibytes(server):
    seen = []
    for size in (8 * MIB, 8 * MIB + 1):
        store = server.client()
        outcome(store.set, "big", "v" * size)
        seen.append(outcome(lambda s: len(s.get("big")), store))
    server.client().delete_key("big")
    return seen


@case(ours=[b"1", "cut off"], why="1.13 and torch's older server know no limit")
def keys_have_eight_kibibytes(server):
    seen = []
    for size in (8191, 8192):
        store = server.client()  # Its own prefix is one byte.
        outcome(store.set, "k" * size, "1")
        seen.append(outcome(store.get, "k" * size))
    return seen


@case()
def prefixes_are_part_of_the_key(server):
    store = server.client()
    inner = dist.PrefixStore("outer", dist.PrefixStore("inner", store))
    inner.set("key", "1")
    seen = [store.get("inner/outer/key"), inner.add("n", 3), inner.delete_key("key"), inner.get("n")]
    return seen, outcome(dist.PrefixStore("p", server.client(SOON)).get, "key")


@case("clone")
def clones_see_the_same(server):
    store = server.client()
    store.set("cloned", "1")
    other = store.clone()
    other.set("cloned", other.get("cloned") + b"2")
    return store.get("cloned"), type(other).__name__


def own_servers():
    """torch's own servers, with the clients that keep them alive."""
    kinds = [("torch", {})]
    if "use_libuv" in dist.TCPStore.__init__.__doc__:
        kinds = [("torch, libuv", {"use_libuv": True}), ("torch, older", {"use_libuv": False})]
    for name, words in kinds:
        keeper = dist.TCPStore("127.0.0.1", 0, 1, True, LONG, False, **words)
        yield keeper, Server(name, "127.0.0.1", keeper.port)


def show(function, servers):
    """Prints the answer of each server, and its time."""
    print(function.__name__)
    for server in servers:
        start = time.monotonic()
        seen = outcome(function, server)
        print(f"  {server.name}, {time.monotonic() - start:.2f} s: {seen!r:.300}")


def main():
    """All cases at all servers; exit code 1 if one differs unannounced."""
    ours = Server("rlaunch", ADDR, PORT)
    kept = ours.client()  # The store forgets nothing as long as a client is connected.
    keepers, upstream = zip(*own_servers())
    wrong = left_out = 0
    for function, needs, differs in CASES:
        if not all(hasattr(dist.TCPStore, method) for method in needs):
            left_out += 1
            continue
        seen = function(ours)
        if "ours" in differs:
            answers = [("what is meant", differs["ours"])]
        else:
            # The older server lacks some operations, and closes the connection without an answer.
            answers = [(server.name, outcome(function, server)) for server in upstream]
            answers = [answer for answer in answers if answer[0] != "torch, older" or "cut off" not in repr(answer[1])]
        for name, answer in answers:
            if answer != seen:
                wrong += 1
                print(f"{function.__name__}:\n  rlaunch {seen!r:.400}\n  {name} {answer!r:.400}")
        print(f"{function.__name__}: done", flush=True)
        if "--show" in sys.argv:
            show(function, [ours, *upstream])
    del keepers, kept
    names = " and ".join(server.name for server in upstream)
    print(f"torch {torch.__version__}: {len(CASES) - left_out} cases at rlaunch and {names}, {left_out} left out, {wrong} differ")
    sys.stdout.flush()
    os._exit(1 if wrong else 0)


if __name__ == "__main__" and os.environ["RANK"] == "0":
    main()
