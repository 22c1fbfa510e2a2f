"""Words and operators of other languages, and what to write here instead."""

from __future__ import annotations

FUNCTION = "a function is `fn name(a: f32) -> f32 { ... }`"
KERNEL = "a kernel is `kernel name(X: tensor<f32>[N]) { ... }`"
LOOP = "a loop is `for i in range(n) { ... }` or `while condition { ... }`"
DECLARE = "declare with `let x = e`, or `var x: f32 = e` for one that changes"
ALONE = "a file stands alone; there is nothing to import"
BLOCK = "a block stands in `{ }`"
SELECT = "there is no conditional expression; write `where(condition, a, b)`"
CONVERT = "a conversion is `f16(x)`"
SHARED = "where a tile lives is the compiler's choice; declare `var s: tile<f32>[r, c] = 0.0`"
NEW_TILE = "a new tile is `zeros(f32, r, c)` or `full(f32, r, c, value)`; a variable is `var x: tile<f32>[r, c] = 0.0`"

WORDS = {
    "and": "write `&&`", "or": "write `||`", "not": "write `!`",
    "elif": "write `else if`", "elseif": "write `else if`", "elsif": "write `else if`",
    "def": FUNCTION, "func": FUNCTION, "function": FUNCTION,
    "void": FUNCTION, "global": KERNEL, "__global__": KERNEL, "extern": ALONE,
    "do": LOOP, "loop": LOOP, "foreach": LOOP,
    "import": ALONE, "include": ALONE, "using": ALONE, "from": ALONE,
    "mut": "a value that changes is `var x = e`", "as": CONVERT,
    "is": "write `==`", "then": BLOCK, "to": "write `range(lo, hi)`",
    "True": "write `true`", "False": "write `false`",
    "__shared__": SHARED, "shared": SHARED,
}  # fmt: skip

HEADER_WORDS = frozenset(("def", "func", "function", "void", "__global__", "global"))
TYPES = frozenset("f16 bf16 f32 f64 f8e4m3 f8e5m2 i8 u8 i32 u32 i64 bool index int float half double auto".split())

# Methods and functions of a module, as in `x.to(f16)` or `tl.load(p)`.
METHODS = {
    "to": CONVERT, "astype": CONVERT, "cast": CONVERT,
    "program_id": "the block is `ctx.block.x`", "num_programs": "the number of blocks is `ctx.grid.x`",
    "load": "a load is a slice, `X[i :+ n]`", "store": "a store assigns to a slice, `Y[i :+ n] = y`",
    "arange": "positions are `iota(axis)`; a slice of `n` from `i` is `X[i :+ n]`",
    "dot": "a product is `dot(a, b)`", "trans": "write `transpose(x)`", "transpose": "write `transpose(x)`",
    "sum": "sums are `rowsum(x)`, `colsum(x)` and `sum(x)`", "max": "maxima are `rowmax(x)`, `colmax(x)` and `max(x)`",
    "zeros": "a new tile is `zeros(f32, r, c)`", "full": "a new tile is `full(f32, r, c, value)`",
    "constexpr": "a compile-time parameter is `const n: i32`, a tuned one `@autotune(N in [16, 64])`",
}  # fmt: skip

# Pairs of tokens that another language writes as one operator.
PAIRS = {
    ("*", "*"): "a power is `pow(x, y)`", ("+", "+"): "write `x += 1`", ("-", "-"): "write `x -= 1`",
    (":", "="): "write `let x = e`, or `=` to assign", ("<", ">"): "write `!=`", ("=", ">"): "write `>=`",
    ("/", "*"): "a comment starts with `//` and ends with its line", ("=", "="): "write `==`",
    ("%", "="): "write `x = x % e`", ("&", "="): "write `x = x & e`", ("|", "="): "write `x = x | e`",
    ("^", "="): "write `x = x ^ e`", ("<<", "="): "write `x = x << e`", (">>", "="): "write `x = x >> e`",
    ("==", "="): "write `==`", ("!=", "="): "write `!=`", (":", ":"): "there are no namespaces",
    (".", "*"): "`*` multiplies element by element", ("/", "/="): "a floor division is `floor(x / y)`",
    ("*", "*="): "a power is `pow(x, y)`", (">>", ">"): "there is no unsigned shift `>>>`; shift an unsigned value",
    ("=", "+"): "write `+=`", ("*", ")"): "there are no `*` arguments", ("@", "NAME"): "a product is `dot(a, b)`",
}  # fmt: skip
