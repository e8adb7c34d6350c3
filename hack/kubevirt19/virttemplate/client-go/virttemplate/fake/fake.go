// Package fake exists because virtctl's own tests name it, which `go mod tidy` follows. It has nothing in it.
package fake
