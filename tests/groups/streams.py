"""A controller that reads streams slowly, and cancels them."""

import asyncio
import time

from rlaunch.groups import Cancelled, WorkerGroup

group = WorkerGroup.attach("gen", start_timeout=60)
first = group.workers[0]


def until(what, seconds=30):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, what


# A worker is at most 16 items ahead of its reader.
stream = first.tokens(n=10_000)
for number in range(100):
    assert next(stream) == number
    if number % 25 == 0:
        produced, _ = first.state().result()
        assert number + 1 <= produced <= number + 1 + 16 + 1, (number, produced)
assert list(stream) == list(range(100, 10_000))
assert first.state().result() == (10_000, 1)

# The memory of the worker stays: 160 MiB would be there at once without a limit.
before = first.memory().result()
stream = first.blocks(n=10_000, size=16 << 10)
for number in range(10_000):
    assert int(next(stream)[:8]) == number
    if number in (0, 5_000):
        grown = first.memory().result() - before
        assert grown < 16 << 20, grown
until(lambda: first.state().result()[1] == 2)

# A cancelled one runs its `finally`.
stream = first.tokens(n=10**9)
next(stream)
stream.cancel()
until(lambda: first.state().result()[1] == 3)
try:
    while True:
        next(stream)
except Cancelled:
    pass
plain = group.workers[1].count(n=10**9)
assert [next(plain) for _ in range(50)] == list(range(50))
plain.close()
assert group.workers[1].closings().result() == 1


async def main():
    # At the same time, beside a plain method that takes longer.
    plain = first.sleep(seconds=0.5)
    began = time.monotonic()
    assert await asyncio.gather(*[first.pause(seconds=0.2) for _ in range(20)]) == [0.2] * 20
    assert not plain.done() or time.monotonic() - began > 0.5
    assert await plain == 0.5
    assert [item async for item in first.tokens(n=100)] == list(range(100))

    async def read():
        async for _ in first.tokens(n=10**9):
            await asyncio.sleep(0.001)

    try:
        await asyncio.wait_for(read(), 0.2)
    except asyncio.TimeoutError:
        pass
    end = time.monotonic() + 30
    while (await first.state())[1] != 5:
        assert time.monotonic() < end


asyncio.run(main())
print("all streams are well", flush=True)
assert group.shutdown()
