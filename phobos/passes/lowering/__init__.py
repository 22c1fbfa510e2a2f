"""From SSA tiles to statements over named storage: one file per family of operations."""
