" Vim syntax file for the Phobos kernel language. Copy it to ~/.vim/syntax/phobos.vim and add to ~/.vimrc:
"   autocmd BufRead,BufNewFile *.ph setfiletype phobos
if exists("b:current_syntax")
  finish
endif

syntax keyword phobosDeclaration kernel fn let var const
syntax keyword phobosControl if else for in while break continue return
syntax keyword phobosConstant true false inf nan
syntax keyword phobosType tensor tile f16 bf16 f32 f64 f8e4m3 f8e5m2 i8 u8 i32 u32 i64 bool index
syntax keyword phobosContext ctx
syntax keyword phobosBuiltin exp exp2 log log2 sqrt rsqrt sin cos tanh sigmoid erf gelu abs floor ceil round pow fma tmax tmin clamp ceildiv where isnan iota transpose reshape broadcast zeros full cat gather tril triu rowmax rowmin rowsum rowprod rowargmax rowargmin colmax colmin colsum colprod colargmax colargmin sum prod max min argmax argmin cumsum reduce dot dot_t atomic_add atomic_max atomic_min atomic_cas print assert range

syntax match phobosComment "//.*$" contains=@Spell
syntax match phobosAttribute "@\h\w*"
syntax match phobosNumber "\<0[xX]\x[0-9A-Fa-f_]*\>"
syntax match phobosNumber "\<\d[0-9_]*\(\.[0-9_]*\)\?\([eE][-+]\?\d\+\)\?"
syntax match phobosNumber "\.\d[0-9_]*\([eE][-+]\?\d\+\)\?"
syntax region phobosString start=+"+ skip=+\\.+ end=+"+ oneline

highlight default link phobosDeclaration Keyword
highlight default link phobosControl Statement
highlight default link phobosConstant Boolean
highlight default link phobosType Type
highlight default link phobosContext Identifier
highlight default link phobosBuiltin Function
highlight default link phobosComment Comment
highlight default link phobosAttribute PreProc
highlight default link phobosNumber Number
highlight default link phobosString String

let b:current_syntax = "phobos"
