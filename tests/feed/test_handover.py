"""What threads hand over to the event loop."""

import asyncio
import threading

from roskva.feed.commit import Handover


def test_what_a_thread_has_is_done_on_the_loop() -> None:
    async def main() -> None:
        handover, done = Handover(), asyncio.get_running_loop().create_future()
        asked = threading.Thread(
            target=lambda: handover.put(lambda: done.set_result(threading.get_ident()))
        )
        asked.start()
        assert await asyncio.wait_for(done, 30) == threading.get_ident()
        asked.join()

    asyncio.run(main())


def test_all_of_it_is_done_in_order_and_once() -> None:
    async def main() -> None:
        handover, heard = Handover(), list[int]()
        for number in range(3):
            handover.put(lambda number=number: heard.append(number))  # type: ignore[misc]
        handover.take()
        assert heard == [0, 1, 2]
        await asyncio.sleep(0)
        assert heard == [0, 1, 2]

    asyncio.run(main())


def test_it_is_one_batch_and_not_taken_in_the_middle_of_itself() -> None:
    async def main() -> None:
        handover, heard = Handover(), list[int]()

        def again(number: int) -> None:
            heard.append(number)
            handover.put(lambda: again(number + 1))
            handover.take()

        again(0)
        assert heard == [0, 1]
        handover.take()
        assert heard == [0, 1, 2]

    asyncio.run(main())


def test_what_fails_does_not_hit_whoever_took_it_nor_what_follows() -> None:
    async def main() -> None:
        wrong: list[Exception] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, said: wrong.append(said["exception"]))
        handover, heard = Handover(), list[int]()
        failure = ValueError("no")

        def fail() -> None:
            raise failure

        handover.put(fail)
        handover.put(lambda: heard.append(1))
        handover.take()
        assert (wrong, heard) == ([failure], [1])

    asyncio.run(main())


def test_it_goes_ahead_of_others_once_in_a_turn_of_the_loop() -> None:
    async def main() -> None:
        handover, heard = Handover(), list[int]()
        handover.put(lambda: heard.append(1))
        handover.take_first()
        handover.put(lambda: heard.append(2))
        handover.take_first()
        assert heard == [1]
        await asyncio.sleep(0)
        assert heard == [1, 2], "in the next turn at the latest"

    asyncio.run(main())
