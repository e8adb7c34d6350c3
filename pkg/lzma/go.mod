// A decoder of LZMA2, for anybody: it needs nothing but the standard library.
module github.com/berth-vm/berth/pkg/lzma

go 1.26.0
