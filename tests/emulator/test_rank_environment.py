from emulator.rank_environment import User, hosts_file, mpirun_words, rank_environment, user_environment
from topologies.builders import build
from topologies.model import FabricKind, FabricSpec

FABRIC = build(FabricSpec(FabricKind.RAIL_ONLY, 2, 4))
GPUS = FABRIC.gpus


def test_ranks_are_numbered_domain_by_domain_and_local_ranks_are_rails():
    told = [rank_environment(GPUS, rank, {}) for rank in range(8)]
    assert [one["RAILBED_GPU"] for one in told] == [f"d{domain}r{rail}" for domain in range(2) for rail in range(4)]
    assert [one["RANK"] for one in told] == [str(rank) for rank in range(8)]
    assert [one["LOCAL_RANK"] for one in told] == ["0", "1", "2", "3"] * 2
    assert {one["WORLD_SIZE"] for one in told} == {"8"}
    assert {one["MASTER_ADDR"] for one in told} == {"d0r0"}
    assert told[5]["OMPI_COMM_WORLD_RANK"] == told[5]["RANK"] == "5"
    assert told[5]["OMPI_COMM_WORLD_LOCAL_RANK"] == told[5]["LOCAL_RANK"] == "1"


def test_fewer_ranks_than_gpus_leave_the_last_domain_with_fewer():
    sizes = [rank_environment(GPUS[:6], rank, {})["LOCAL_WORLD_SIZE"] for rank in range(6)]
    assert sizes == ["4", "4", "4", "4", "2", "2"]


def test_a_rank_that_has_moved_keeps_its_number_and_local_ranks_stay_a_row() -> None:
    moved = [GPUS[0], GPUS[1], GPUS[6], GPUS[3], GPUS[4]]  # rank 2 has gone from d0r2 to d1r2
    told = [rank_environment(moved, rank, {}, restarts=1) for rank in range(5)]
    assert [one["RANK"] for one in told] == ["0", "1", "2", "3", "4"]
    assert [one["RAILBED_GPU"] for one in told] == ["d0r0", "d0r1", "d1r2", "d0r3", "d1r0"]
    assert [(one["NODE_RANK"], one["LOCAL_RANK"]) for one in told] == [
        ("0", "0"), ("0", "1"), ("1", "1"), ("0", "2"), ("1", "0")
    ]  # fmt: skip
    assert [one["LOCAL_WORLD_SIZE"] for one in told] == ["3", "3", "2", "3", "2"]
    assert {one["TORCHELASTIC_RESTART_COUNT"] for one in told} == {"1"}
    assert rank_environment([GPUS[5], *GPUS[1:3]], 1, {})["MASTER_ADDR"] == "d1r1"


def test_the_users_environment_is_kept_but_not_where_it_would_be_wrong():
    told = rank_environment(GPUS, 3, {"RANK": "99", "OMP_NUM_THREADS": "4", "MY_DATA": "/data"}, port=1234)
    assert (told["RANK"], told["OMP_NUM_THREADS"], told["MY_DATA"]) == ("3", "4", "/data")
    assert told["MASTER_PORT"] == "1234"
    assert rank_environment(GPUS, 3, {})["OMP_NUM_THREADS"] == "1"


def test_every_gpu_has_a_name_of_its_own_with_its_address():
    lines = [line.split() for line in hosts_file(FABRIC).splitlines()]
    assert lines[0] == ["127.0.0.1", "localhost"]
    assert lines[1:3] == [["10.0.1.0", "d0r0"], ["10.0.1.1", "d0r1"]]
    assert len({address for address, _ in lines}) == len(lines) == 9


def test_under_sudo_home_and_name_are_the_users():
    user = User(1000, 1000, "ada", "/home/ada")
    assert user_environment({"HOME": "/root", "USER": "root", "X": "1"}, user) == {
        "HOME": "/home/ada", "USER": "ada", "LOGNAME": "ada", "X": "1"
    }  # fmt: skip
    assert user_environment({"HOME": "/root"}, None) == {"HOME": "/root"}


def test_the_python_path_that_the_launcher_took_is_given_back():
    found = user_environment({"RAILBED_CALLERS_PYTHONPATH": "/my/code", "X": "1"}, None)
    assert found == {"PYTHONPATH": "/my/code", "X": "1"}


def test_mpirun_starts_one_process_on_each_gpu_over_tcp_only():
    words = mpirun_words(["d0r0", "d0r1"], ["./osu_allreduce", "-m", "8"], as_root=False)
    assert words[0] == "mpirun"
    assert words[-5:] == ("-np", "2", "./osu_allreduce", "-m", "8")
    assert words[words.index("--host") + 1] == "d0r0,d0r1"
    assert words[words.index("btl") + 1] == "tcp,self"
    assert "--allow-run-as-root" not in words
    assert "--allow-run-as-root" in mpirun_words(["d0r0"], ["true"], as_root=True)
