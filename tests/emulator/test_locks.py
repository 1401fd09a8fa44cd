import threading
from pathlib import Path

from emulator.locks import exclusive, remove_if_free


def test_one_holder_at_a_time_though_each_removes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.lock"
    inside, most = [], []

    def work() -> None:
        for _ in range(50):
            with exclusive(path):
                inside.append(1)
                most.append(len(inside))
                inside.pop()
                path.unlink()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(most) == 200
    assert not path.exists()


def test_a_lock_ends_with_its_body_however_that_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    for error in (FileNotFoundError, KeyboardInterrupt):
        try:
            with exclusive(path):
                raise error
        except error:
            pass
    with exclusive(path):
        remove_if_free(path)
        assert path.exists(), "it is held"
    remove_if_free(path)
    assert not path.exists()
    remove_if_free(path)
