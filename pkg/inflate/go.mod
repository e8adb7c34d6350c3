// A decoder of deflate, for anybody: it needs nothing but the standard library.
module github.com/berth-vm/berth/pkg/inflate

go 1.26.0
