"""Peers that several benches share. All run through torch, where it is installed."""

from __future__ import annotations

from kbench.bench import Peer, PeerInput, Prepared


def copy_of_bytes() -> Peer:
    """A device copy that reads and writes as many bytes as the case: what the memory can do."""

    def prepare(given: PeerInput) -> Prepared:
        torch = given.torch
        device = next(iter(given.tensors.values())).device
        source = torch.randn(max(1, int(given.bytes / 8)), device=device, dtype=torch.float32)
        target = torch.empty_like(source)
        return Prepared(call=lambda: target.copy_(source), outputs={})

    return Peer(name="copy", prepare=prepare)


def cublas_gemm(a: str = "A", b: str = "B", c: str = "C") -> Peer:
    """C = alpha A B + beta C in place. cuBLAS runs f32 as IEEE f32: TF32 is off for the whole run."""

    def prepare(given: PeerInput) -> Prepared:
        t, s = given.tensors, given.scalars
        call = lambda: t[c].addmm_(t[a], t[b], beta=s["beta"], alpha=s["alpha"])  # noqa: E731
        return Prepared(call=call, outputs={c: t[c]})

    return Peer(name="cublas", prepare=prepare)


def sdpa(name: str, backend: str | None = None) -> Peer:
    """scaled_dot_product_attention of one head [N, D]; `backend` names a torch SDPBackend, None lets torch choose."""

    def prepare(given: PeerInput) -> Prepared:
        torch, t, scale = given.torch, given.tensors, given.scalars["scale"]
        q, k, v = (t[n][None, None] for n in ("Q", "K", "V"))
        attention = torch.nn.functional.scaled_dot_product_attention
        outputs: dict[str, object] = {}

        def call() -> None:
            outputs["O"] = attention(q, k, v, scale=scale)[0, 0]

        if backend is None:
            return Prepared(call=call, outputs=outputs)
        kernel = torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend))

        def pinned() -> None:
            with kernel:
                call()

        return Prepared(call=pinned, outputs=outputs)

    return Peer(name=name, prepare=prepare)
