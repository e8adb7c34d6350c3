// What stands here for libguestfs.org/libnbd, see libnbd.go.
module libguestfs.org/libnbd

go 1.24
