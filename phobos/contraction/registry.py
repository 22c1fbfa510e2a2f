"""The rooms in order of preference, and the choice among them for the products of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phobos.contraction import fma, mma_sync, wmma
from phobos.contraction.interface import ContractionPlan, ContractionQuery, Room

ROOMS: tuple[Room, ...] = (mma_sync, wmma, fma)  # type: ignore[assignment]
_NOT_BUILT = {"wgmma": "not built in this version"}  # words of the option `matmul` without a room


@dataclass(frozen=True)
class Rejected:
    room: str
    reason: str


@dataclass(frozen=True)
class Answer:
    """The plan for one product, or None, and why the other rooms were not taken."""

    plan: ContractionPlan | None
    rejected: tuple[Rejected, ...]


def choose(queries: Sequence[ContractionQuery]) -> list[Answer]:
    """Plans for products whose rows should line up (one group: equal m where possible).

    The first room that accepts a product takes it. Within a room, products of equal m share the split of rows over
    warps and lanes with the least total cost, so that row statistics of one serve the other without an exchange.
    """
    rooms: list[Room | None] = []
    rejections: list[list[Rejected]] = []
    for q in queries:
        chosen: Room | None = None
        no: list[Rejected] = []
        for room in ROOMS:
            reason = room.reject(q)
            if reason is None and chosen is None:
                chosen = room
            elif reason is not None:
                no.append(Rejected(room.name, reason))
            else:
                assert chosen is not None
                no.append(Rejected(room.name, f"{chosen.name} is tried first and takes it"))
        no += [Rejected(room_name, why) for room_name, why in _NOT_BUILT.items()]
        rooms.append(chosen)
        rejections.append(no)
    answers: list[Answer | None] = [None] * len(queries)
    groups: dict[tuple[str, int], list[int]] = {}
    for i, (q, taken) in enumerate(zip(queries, rooms)):
        if taken is None:
            answers[i] = Answer(None, tuple(rejections[i]))
        else:
            groups.setdefault((taken.name, q.m), []).append(i)
    for members in groups.values():
        taken = rooms[members[0]]
        assert taken is not None
        for i, plan in zip(members, _aligned_plans(taken, [queries[i] for i in members])):
            answers[i] = Answer(plan, tuple(rejections[i]))
    return [a for a in answers if a is not None]


def _aligned_plans(room: Room, queries: Sequence[ContractionQuery]) -> list[ContractionPlan]:
    """The cheapest plans that share a row split; each its own best where rows need not line up."""
    options = [_owning_rows(room.plans(q), q) for q in queries]
    best = [min(o, key=lambda p: p.cost) for o in options]
    if len(queries) == 1 or not any(q.whole_rows for q in queries):
        return best
    splits = {p.row_split for p in options[0]}.intersection(*({p.row_split for p in o} for o in options[1:]))
    shared = [
        [min((p for p in o if p.row_split == split), key=lambda p: p.cost) for o in options] for split in sorted(splits)
    ]
    return min(shared, key=lambda plans: sum(p.cost for p in plans)) if shared else best


def _owning_rows(plans: Sequence[ContractionPlan], query: ContractionQuery) -> list[ContractionPlan]:
    """Where row statistics are needed, the plans with as many warps along rows as there are: a row spread over warps
    needs shared memory for its maximum and sum."""
    if not query.whole_rows:
        return list(plans)
    within = [p for p in plans if p.row_split[0] <= query.m] or list(plans)
    most = max(p.row_split[0] for p in within)
    return [p for p in within if p.row_split[0] == most]
