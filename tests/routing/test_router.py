"""The router: golden numbers, ties, what it counts, and what its receipts say."""

import pytest

from engine.errors import UnknownNameError
from engine.kv.prefix import extend_chain, root_hash
from engine.profiling.profile import Rates
from engine.receipt import Candidate, Receipt
from engine.request import BackendName, FinishReason, Request, RequestId
from engine.routing.policies import check_policy, choose, isolated_s, policy_names
from engine.routing.receipt import receipt_json
from engine.routing.router import Router
from engine.step_report import BackendLoad, Ending, RequestLoad, StepReport
from tests.builders import make_request, unlike

CPU, GPU = BackendName("cpu"), BackendName("gpu")
CPU_RATES, GPU_RATES = Rates(73, 45), Rates(2551, 293)
PREFIX = unlike(9, 500)
CHAIN = tuple(extend_chain([], root_hash("salt"), PREFIX, 31))


def make_router(policy: str = "isolated-rates", calibrated: bool = True, labels: bool = True) -> Router:
    router = Router(policy, [(CPU, "CPU", "salt"), (GPU, "GPU", "salt")])
    if calibrated:
        router.set_rates(CPU, CPU_RATES)
        router.set_rates(GPU, GPU_RATES)
    return router


def report(
    backend: BackendName,
    sequence: int,
    *loads: RequestLoad,
    ended: tuple[int, ...] = (),
    added: tuple[bytes, ...] = (),
    removed: tuple[bytes, ...] = (),
) -> StepReport:
    return StepReport(
        backend,
        sequence,
        0.0,
        0.0,
        ended=tuple(Ending(RequestId(i), FinishReason.LENGTH) for i in ended),
        load=BackendLoad(loads, 10, 100),
        hashes_added=added,
        hashes_removed=removed,
    )


def active(request_id: int, decode: int, prefill: int = 0, slot: int = 0) -> RequestLoad:
    return RequestLoad(RequestId(request_id), slot, 516, 496, prefill, 128 - decode, decode)


def queued(request_id: int, decode: int = 128, prefill: int = 20) -> RequestLoad:
    return RequestLoad(RequestId(request_id), -1, 516, 496, prefill, 0, decode)


def warm(request_id: int) -> Request:
    return make_request(request_id, (*PREFIX, *unlike(request_id, 16)), 128)


def candidate(receipt: Receipt, name: str) -> Candidate:
    found = receipt.candidate(name)
    assert found is not None
    return found


def warm_router(*gpu: RequestLoad, policy: str = "isolated-rates") -> Router:
    router = make_router(policy)
    router.observe(report(CPU, 0, added=CHAIN))
    router.observe(report(GPU, 0, *gpu, added=CHAIN))
    return router


# --- golden numbers ------------------------------------------------------------------------------------


def test_request_7_goes_to_the_gpu() -> None:
    four = [active(i, 124, slot=i) for i in range(4)]  # 496 tokens to decode
    receipt = warm_router(*four, queued(5), queued(6)).choose(warm(7), 1.0)
    cpu, gpu = candidate(receipt, CPU), candidate(receipt, GPU)
    assert (gpu.active, gpu.queued, gpu.prefill_tokens, gpu.decode_tokens) == (4, 2, 60, 880)
    assert (cpu.active, cpu.queued, cpu.prefill_tokens, cpu.decode_tokens) == (0, 0, 20, 128)
    assert cpu.score_s == pytest.approx(3.118, abs=5e-4)
    assert gpu.score_s == pytest.approx(3.027, abs=5e-4)
    assert receipt.chosen == GPU and receipt.margin == pytest.approx(0.091, abs=1e-3)
    assert receipt.unit == "s" and receipt.policy == "isolated-rates" and receipt.time_s == 1.0


def test_request_8_goes_to_the_cpu() -> None:
    four = [active(i, 122, slot=i) for i in range(4)]  # 488
    receipt = warm_router(*four, queued(5), queued(6), queued(7)).choose(warm(8), 1.0)
    cpu, gpu = candidate(receipt, CPU), candidate(receipt, GPU)
    assert (gpu.active, gpu.queued, gpu.prefill_tokens, gpu.decode_tokens) == (4, 3, 80, 1000)
    assert cpu.score_s == pytest.approx(3.118, abs=5e-4)
    assert gpu.score_s == pytest.approx(3.444, abs=5e-4)
    assert receipt.chosen == CPU
    assert receipt.reason == "Waiting for the GPU would cost 3.4 s, the CPU needs 3.1 s."


def test_496_tokens_of_the_seed_prompt_are_believed_cached() -> None:
    receipt = warm_router().choose(warm(1), 0.0)
    assert [c.cached_tokens for c in receipt.candidates] == [496, 496]
    assert [c.own_prefill_tokens for c in receipt.candidates] == [20, 20]


# --- choosing ------------------------------------------------------------------------------------------


def plain(name: str, score_s: float | None = 1.0, active: int = 0, queued: int = 0) -> Candidate:
    return Candidate(BackendName(name), None, score_s, active, queued, 0, 1, 1, 0, 0, 0, 0, 1.0, 1.0)


@pytest.mark.parametrize("fastest", [0, 1])
@pytest.mark.parametrize("policy", ["isolated-rates", "least-requests"])
def test_a_tie_goes_to_the_faster(policy: str, fastest: int) -> None:
    choice = choose(policy, [plain("a"), plain("b")], [fastest, 1 - fastest], 0)
    assert choice.chosen == fastest


def test_forced_policies() -> None:
    both = [plain("cpu"), plain("gpu")]
    assert choose("forced-cpu", both, [1, 0], 0).chosen == 0
    assert choose("forced-gpu", both, [1, 0], 0).chosen == 1
    assert choose("forced-fastest", both, [1, 0], 0).chosen == 1
    assert choose("forced-slowest", both, [1, 0], 0).chosen == 0
    assert choose("forced-gpu", both[:1], [0], 0).chosen == 0  # it is dead: whoever is alive


def test_a_forced_choice_weighs_nothing() -> None:
    receipt = warm_router(policy="forced-cpu").choose(warm(1), 0.0)
    assert receipt.chosen == CPU and receipt.unit == "" and receipt.margin is None
    assert [c.score for c in receipt.candidates] == [None, None]
    assert all(c.score_s is not None for c in receipt.candidates)  # priced all the same


def test_a_users_own_choice_comes_first() -> None:
    assert warm_router().choose(warm(1), 0.0, only=CPU).chosen == CPU


def test_round_robin_takes_turns() -> None:
    router = make_router("round-robin")
    assert [router.choose(make_request(i), 0.0).chosen for i in range(1, 5)] == [CPU, GPU, CPU, GPU]


def test_least_requests_counts_active_and_queued() -> None:
    router = warm_router(active(1, 100), policy="least-requests")
    receipt = router.choose(warm(2), 0.0)
    assert receipt.chosen == CPU and [c.score for c in receipt.candidates] == [0.0, 1.0]
    assert receipt.unit == "requests"


@pytest.mark.parametrize("known", [(), (CPU,), (GPU,)])
def test_without_all_rates_the_fewest_requests_decide_and_the_receipt_says_so(
    known: tuple[BackendName, ...],
) -> None:
    router = make_router(calibrated=False)
    for name in known:
        router.set_rates(name, CPU_RATES)
    receipt = router.choose(make_request(1), 0.0)
    assert receipt.policy == "least-requests" and receipt.unit == "requests"
    assert receipt.reason.startswith("Not calibrated yet")
    assert [c.score_s is None for c in receipt.candidates] == [CPU not in known, GPU not in known]


def test_policies_are_checked_by_name() -> None:
    assert "isolated-rates" in policy_names(["cpu", "gpu"])
    for name in policy_names(["cpu", "gpu"]):
        check_policy(name, ["cpu", "gpu"])
    with pytest.raises(UnknownNameError, match="'forced-tpu'.*forced-cpu"):
        check_policy("forced-tpu", ["cpu", "gpu"])
    with pytest.raises(UnknownNameError):
        make_router().set_policy("best")


def test_fastest_first_puts_the_uncalibrated_last() -> None:
    router = make_router(calibrated=False)
    assert router.fastest_first() == [CPU, GPU]
    router.set_rates(GPU, GPU_RATES)
    assert router.fastest_first() == [GPU, CPU]
    router.set_rates(CPU, Rates(9999, 999))
    assert router.fastest_first() == [CPU, GPU]


# --- counting ------------------------------------------------------------------------------------------


def test_a_request_on_its_way_counts_as_queued_exactly_once() -> None:
    router = warm_router(policy="forced-gpu")
    router.choose(warm(1), 0.0)

    def gpu(number: int) -> Candidate:
        return candidate(router.choose(make_request(number, 10, 5), 0.0, only=CPU), GPU)

    first = gpu(100)
    assert (first.active, first.queued) == (0, 1)
    assert (first.queued_prefill_tokens, first.queued_decode_tokens) == (20, 128)
    router.observe(report(GPU, 1))  # a step that ended before it got there
    assert gpu(101).queued == 1
    router.observe(report(GPU, 2, queued(1)))
    second = gpu(102)
    assert (second.queued, second.queued_prefill_tokens, second.queued_decode_tokens) == (1, 20, 128)
    router.observe(report(GPU, 3, active(1, 100, slot=0)))
    third = gpu(103)
    assert (third.active, third.queued, third.active_decode_tokens) == (1, 0, 100)
    router.observe(report(GPU, 4, ended=(1,)))
    last = gpu(104)
    assert (last.active, last.queued, last.decode_tokens) == (0, 0, 5)


def test_a_cancelled_request_no_longer_counts() -> None:
    router = warm_router(policy="forced-gpu")
    router.choose(warm(1), 0.0)
    router.forget(GPU, RequestId(1))
    router.forget(GPU, RequestId(1))
    assert candidate(router.choose(warm(2), 0.0), GPU).queued == 0


def test_64_outstanding_requests_are_all_counted() -> None:
    router = warm_router(
        *(active(i, 10, slot=i) for i in range(4)), *(queued(i) for i in range(4, 20)), policy="forced-gpu"
    )
    for i in range(20, 64):
        router.choose(warm(i), 0.0)
    gpu = candidate(router.choose(warm(64), 0.0), GPU)
    assert (gpu.active, gpu.queued) == (4, 60)
    assert gpu.active_decode_tokens == 40 and gpu.queued_decode_tokens == 60 * 128
    assert gpu.queued_prefill_tokens == 60 * 20


def test_the_sums_of_a_receipt_are_sums() -> None:
    router = warm_router(active(1, 100, prefill=7), queued(2, prefill=11))
    gpu = candidate(router.choose(warm(3), 0.0), GPU)
    assert gpu.prefill_tokens == gpu.own_prefill_tokens + 7 + 11
    assert gpu.decode_tokens == gpu.own_decode_tokens + 100 + 128
    again_s = isolated_s(gpu.prefill_tokens, gpu.decode_tokens, gpu.prefill_rate, gpu.decode_rate)
    assert gpu.score_s == again_s == gpu.prefill_tokens / 2551 + gpu.decode_tokens / 293


# --- the mirror of the prefix index ----------------------------------------------------------------------


def believed(router: Router, name: BackendName, number: int) -> int:
    return candidate(router.choose(warm(number), 0.0), name).cached_tokens


def test_the_mirror_follows_additions_and_removals() -> None:
    router = make_router()
    assert believed(router, GPU, 1) == 0
    router.observe(report(GPU, 0, added=CHAIN[:10]))
    assert (believed(router, GPU, 2), believed(router, CPU, 3)) == (160, 0)
    router.observe(report(GPU, 1, added=CHAIN[10:], removed=CHAIN[5:6]))
    assert believed(router, GPU, 4) == 80
    router.observe(report(GPU, 2, added=CHAIN[5:6]))
    assert believed(router, GPU, 5) == 496


def test_salts_keep_mirrors_apart() -> None:
    router = Router("round-robin", [(CPU, "CPU", "one"), (GPU, "GPU", "salt")])
    router.observe(report(CPU, 0, added=CHAIN))
    assert believed(router, CPU, 1) == 0


def test_a_lost_report_is_noticed() -> None:
    router = make_router()
    router.observe(report(GPU, 0))
    with pytest.raises(AssertionError, match="lost"):
        router.observe(report(GPU, 2))


# --- death and return ------------------------------------------------------------------------------------


def test_a_dead_backend_is_no_candidate() -> None:
    router = warm_router(active(1, 100))
    router.remove(GPU)
    receipt = router.choose(warm(2), 0.0, moved_from=GPU)
    assert [c.backend for c in receipt.candidates] == [CPU] and receipt.chosen == CPU
    assert receipt.moved_from == GPU
    assert receipt.reason == "The GPU stopped before it began; the CPU takes it."
    assert router.alive() == [CPU]


def test_the_only_backend_says_so() -> None:
    router = make_router()
    router.remove(GPU)
    assert router.choose(warm(1), 0.0).reason == "The CPU is the only backend running."


def test_a_backend_comes_back_empty_and_keeps_its_rates() -> None:
    router = warm_router(active(1, 100), policy="forced-gpu")
    router.choose(warm(2), 0.0)
    router.remove(GPU)
    router.restore(GPU)
    gpu = candidate(router.choose(warm(3), 0.0), GPU)
    assert (gpu.active, gpu.queued, gpu.cached_tokens, gpu.prefill_rate) == (0, 0, 0, 2551)
    router.observe(report(GPU, 0))  # its reports count from 0 again


def test_a_forced_backend_that_is_dead_is_told() -> None:
    names = [BackendName(n) for n in ("cpu-1", "cpu-2", "gpu")]
    router = Router("forced-gpu", [(n, n.upper(), "") for n in names])
    router.remove(names[2])
    receipt = router.choose(make_request(1), 0.0)
    assert receipt.chosen == "cpu-1"
    assert receipt.reason == "The forced backend is not running, so the CPU-1 takes it."


def test_receipts_as_json() -> None:
    data = receipt_json(warm_router().choose(warm(1), 0.0))
    assert {"chosen", "reason", "candidates", "moved_from", "policy"} <= set(data)
    rows = data["candidates"]
    assert isinstance(rows, list)
    wanted = {"backend", "score_s", "prefill_tokens", "decode_tokens", "active", "queued", "cached_tokens"}
    assert all(wanted <= set(r) for r in rows)
