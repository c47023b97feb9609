"""Whose turn it is at a tracker."""

from __future__ import annotations

import random

from armillary.rpc.queue import AGEING_SECONDS, CLAIM_SECONDS, Book, Device, Request


def device(book: Book, key: str = "k", now: float = 0.0) -> Device:
    made = Device(key, "h", 1)
    book.add(made)
    book.free(made, f"ticket {len(book.devices)}", now)
    return made


def next_user(book: Book, made: Device, now: float = 0.0) -> str:
    book.free(made, f"ticket {now}", now)
    (request,) = book.grant(now)
    book.busy(made, request.ticket, "", now)
    return request.user


def test_the_highest_priority_goes_first_then_the_oldest() -> None:
    book = Book()
    made = device(book)
    for user, priority in (("a", 1), ("b", 5), ("c", 1), ("d", 5)):
        book.ask("k", user, priority, 0.0)
    assert [next_user(book, made) for _ in range(4)] == ["b", "d", "a", "c"]


def test_a_user_with_many_requests_does_not_keep_another_waiting() -> None:
    book = Book()
    device(book), device(book)
    for _ in range(5):
        book.ask("k", "greedy", 1, 0.0)
    book.ask("k", "modest", 1, 1.0)
    assert [request.user for request in book.grant(1.0)] == ["greedy", "modest"]


def test_who_used_devices_least_of_late_goes_first() -> None:
    book = Book()
    made = device(book)
    book.ask("k", "a", 1, 0.0)
    assert next_user(book, made, 0.0) == "a"
    book.free(made, "t", 30.0)
    book.ask("k", "a", 1, 31.0)
    book.ask("k", "b", 1, 32.0)
    assert next_user(book, made, 33.0) == "b"


def test_waiting_raises_a_low_priority() -> None:
    book = Book()
    made = device(book)
    book.ask("k", "patient", 1, 0.0)
    book.ask("k", "urgent", 3, 3 * AGEING_SECONDS)
    assert next_user(book, made, 3 * AGEING_SECONDS + 1) == "patient"


def test_only_devices_of_the_key_are_given() -> None:
    book = Book()
    device(book, "other")
    book.ask("k", "a", 1, 0.0)
    assert book.grant(0.0) == []


def test_a_ticket_that_is_not_claimed_is_taken_back() -> None:
    book = Book()
    made = device(book)
    book.ask("k", "a", 1, 0.0)
    book.grant(0.0)
    assert book.unclaimed(CLAIM_SECONDS - 1) == [] and book.unclaimed(CLAIM_SECONDS + 1) == [made]
    assert made.state == "busy" and book.held("a") == 0


def test_random_histories_give_each_ticket_once_and_lose_no_device() -> None:
    random_ = random.Random(3)
    book, now, given = Book(), 0.0, set()
    devices = [device(book, random_.choice("ab")) for _ in range(5)]
    waiting: list[Request] = []
    for step in range(5000):
        now += random_.random()
        choice = random_.randrange(5)
        if choice == 0 and len(waiting) < 20:
            waiting.append(book.ask(random_.choice("ab"), random_.choice("uvw"), random_.randrange(3), now))
        elif choice == 1 and waiting:
            book.leave(waiting.pop(random_.randrange(len(waiting))))
        elif choice == 2:
            made = random_.choice(devices)
            book.busy(made, made.ticket, "u", now)
        elif choice == 3:
            book.free(random_.choice(devices), f"t{step}", now)
        else:
            book.unclaimed(now)
        for request in book.grant(now):
            assert request.granted is not None and request.granted.key == request.key
            assert request.ticket not in given
            given.add(request.ticket)
            waiting.remove(request)
        free = {d.key for d in devices if d.state == "free"}
        assert not any(request.key in free for request in book.waiting)
        assert waiting == book.waiting and {d.state for d in devices} <= {"free", "granted", "busy"}
