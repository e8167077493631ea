import pytest

from shoal.cluster.base import Refused
from shoal.cluster.local.admission import check
from shoal.objects.node import Capacity
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.task import Placement, TaskSpec

CAPACITY = Capacity(cpu=CpuMillis(2000), memory=Bytes(1000), gpus=("0", "1"))


def spec(name, cpu=0, memory=None, devices=(), node="n", isolation="default"):
    return TaskSpec(
        namespace="default", name=name, job="job", job_uid="uid", role="worker", index=0, attempt=1,
        incarnation=1, placement=Placement(node=node, devices=devices), command=("true",),
        cpu=CpuMillis(cpu), memory=None if memory is None else Bytes(memory), isolation=isolation,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("held", "wanted", "reason"),
    [
        ([], [spec("a", cpu=2000, memory=1000, devices=("0", "1"))], None),
        ([spec("a", cpu=1500)], [spec("b", cpu=500)], None),
        ([spec("a", cpu=1500)], [spec("b", cpu=501)], "OutOfCpu"),
        ([], [spec("a", cpu=1500), spec("b", cpu=600)], "OutOfCpu"),
        ([spec("a", memory=600)], [spec("b", memory=401)], "OutOfMemory"),
        ([spec("a", memory=1000)], [spec("b")], None),
        ([spec("a", devices=("0",))], [spec("b", devices=("1",))], None),
        ([spec("a", devices=("0",))], [spec("b", devices=("0",))], "DeviceTaken"),
        ([], [spec("a", devices=("0",)), spec("b", devices=("0",))], "DeviceTaken"),
        ([], [spec("a", devices=("7",))], "DeviceTaken"),
        ([], [spec("a", devices=("0", "0"))], "DeviceTaken"),
        ([], [spec("a", node="other")], "NodeMismatch"),
        ([], [spec("a", isolation="strict")], "IsolationUnavailable"),
    ],
)
def test_room_for_all_or_none(held, wanted, reason):
    refusal = "no user namespaces"
    if reason is None:
        check("n", CAPACITY, held, wanted, refusal)
        return
    with pytest.raises(Refused) as caught:
        check("n", CAPACITY, held, wanted, refusal)
    assert (caught.value.node, caught.value.reason) == ("n", reason)


def test_strict_where_it_can_be_had():
    check("n", CAPACITY, [], [spec("a", isolation="strict")], "")
