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


def sdpa(name: str, backend: str | None = None, *, causal: bool = False) -> Peer:
    """scaled_dot_product_attention of one head [N, D] or of [B, H, N, D]; `backend` names a torch SDPBackend, None lets
    torch choose. `causal` needs as many keys as queries: torch lines up the first query with the first key."""

    def prepare(given: PeerInput) -> Prepared:
        torch, t, scale = given.torch, given.tensors, given.scalars["scale"]
        one_head = t["Q"].ndim == 2
        q, k, v = (t[n][None, None] if one_head else t[n] for n in ("Q", "K", "V"))
        options = {"scale": scale, "is_causal": causal, "enable_gqa": q.shape[1] != k.shape[1]}
        attention = torch.nn.functional.scaled_dot_product_attention
        outputs: dict[str, object] = {}

        def call() -> None:
            out = attention(q, k, v, **options)
            outputs["O"] = out[0, 0] if one_head else out

        if backend is None:
            return Prepared(call=call, outputs=outputs)
        which = getattr(torch.nn.attention.SDPBackend, backend)

        def pinned() -> None:
            with torch.nn.attention.sdpa_kernel(which):  # good for one use only
                call()

        return Prepared(call=pinned, outputs=outputs)

    return Peer(name=name, prepare=prepare)
