package main

import (
	"fmt"
	"strings"
)

// work is one task for our program and for others, and the goal for our program.
type work struct {
	letter   string
	what     string
	ours     string // arguments of `worker import`; $web, $hub, $disk, $xfs and $out are set
	exact    bool   // what ours makes must be the disk, byte for byte
	others   []contender
	goals    []goal
	needs    string // letters of images besides its own
	registry bool
	reflink  bool
}

// contender is another program that does the same work, or a bound that no program can beat.
type contender struct {
	name  string
	cmd   string // for bash
	exact bool   // what it makes must be the disk, byte for byte
	bound string // instead of cmd: the name of a measurement of our own
}

// goal is a ratio of medians.
type goal struct {
	text    string
	over    string  // whose time is divided
	under   string  // by whose; empty for seconds as they are
	limit   float64 // at least this if atLeast, else at most
	atLeast bool
}

const (
	ours    = "worker"
	flush   = ` && sync "$out"`
	sparse  = `dd of="$out" bs=1M iflag=fullblock conv=sparse,fsync status=none`
	get     = `curl -sSf "$web/`
	qemuNet = `qemu-img convert -m 1 -O raw "$web/`
)

var works = []work{
	{
		letter: "a", what: "compressed qcow2", ours: `--from $web/a.qcow2`, exact: true,
		others: []contender{
			{name: "qemu-img from http", cmd: qemuNet + `a.qcow2" "$out"` + flush},
			{name: "loopback read", cmd: get + `a.qcow2" -o /dev/null`},
			{name: "inflate, 1 thread", bound: "inflate1"},
			{name: "inflate, all cores", bound: "inflate"},
			{name: "write + fsync", bound: "write"},
		},
		goals: []goal{
			{text: "at least 3.3x qemu-img from http", over: "qemu-img from http", under: ours, limit: 3.3, atLeast: true},
			{text: "within 1.9x of inflating its clusters on all cores", over: ours, under: "inflate, all cores", limit: 1.9},
		},
	},
	{
		letter: "b", what: "plain qcow2", ours: `--from $web/b.qcow2`, exact: true,
		others: []contender{
			{name: "qemu-img from http", cmd: qemuNet + `b.qcow2" "$out"` + flush},
			{name: "loopback read", cmd: get + `b.qcow2" -o /dev/null`},
		},
		goals: []goal{{text: "at least 1.8x qemu-img from http", over: "qemu-img from http", under: ours, limit: 1.8, atLeast: true}},
	},
	{
		letter: "c", what: "sparse raw", ours: `--from $web/c.raw`, exact: true,
		others: []contender{
			{name: "qemu-img from http", cmd: `qemu-img convert -m 1 -f raw -O raw "$web/c.raw" "$out"` + flush},
			{name: "loopback read", cmd: get + `c.raw" -o /dev/null`},
		},
		goals: []goal{{text: "within 1.15x of the loopback read", over: ours, under: "loopback read", limit: 1.15}},
	},
	{
		letter: "d", what: "raw.gz", ours: `--from $web/d.raw.gz`, exact: true,
		others: []contender{{name: "curl, pigz, dd", cmd: get + `d.raw.gz" | pigz -dc | ` + sparse}},
		goals:  []goal{{text: "at least 3x curl, pigz, dd", over: "curl, pigz, dd", under: ours, limit: 3, atLeast: true}},
	},
	{
		letter: "e", what: "raw.xz, many blocks", ours: `--from $web/e.raw.xz`, exact: true,
		others: []contender{{name: "curl, xz -T2, dd", cmd: get + `e.raw.xz" | xz -T2 -dc | ` + sparse}},
		goals:  []goal{{text: "no slower than curl, xz -T2, dd", over: ours, under: "curl, xz -T2, dd", limit: 1}},
	},
	{
		letter: "f", what: "raw.zst", ours: `--from $web/f.raw.zst`, exact: true,
		others: []contender{{name: "curl, zstd, dd", cmd: get + `f.raw.zst" | zstd -dc | ` + sparse}},
		goals:  []goal{{text: "no slower than curl, zstd, dd", over: ours, under: "curl, zstd, dd", limit: 1}},
	},
	{
		letter: "g", needs: "b", what: "container layer, plain qcow2 inside", ours: `--plain-http --from docker://$hub/disk-g:latest`, exact: true,
		registry: true, others: []contender{{name: "pull, unpack, qemu-img", cmd: unpack("g")}},
	},
	{
		letter: "h", needs: "a", what: "container layer, compressed qcow2 inside", ours: `--plain-http --from docker://$hub/disk-h:latest`, exact: true,
		registry: true, others: []contender{{name: "pull, unpack, qemu-img", cmd: unpack("h")}},
		goals: []goal{{text: "at least 2.8x pulling, unpacking, qemu-img", over: "pull, unpack, qemu-img", under: ours, limit: 2.8, atLeast: true}},
	},
	{
		letter: "clone", what: "clone on one filesystem", ours: `--raw --from $disk`, exact: true,
		others: []contender{{name: "cp --sparse=auto", cmd: `cp --sparse=auto "$disk" "$out"` + flush}},
		goals:  []goal{{text: "no slower than cp --sparse=auto", over: ours, under: "cp --sparse=auto", limit: 1}},
	},
	{
		letter: "reflink", what: "clone on one filesystem with reflinks (XFS)", ours: `--raw --from $xfs/c.raw`, reflink: true,
		others: []contender{{name: "cp --reflink=always", cmd: `cp --reflink=always "$xfs/c.raw" "$out"` + flush}},
		goals:  []goal{{text: "under 50 ms", over: ours, limit: 0.050}},
	},
}

// unpack returns what a person does with a container disk.
func unpack(letter string) string {
	return fmt.Sprintf(`mkdir "$out.d" && curl -sSfL "http://$hub/v2/disk-%[1]s/blobs/$layer_%[1]s" -o "$out.d/layer" &&
tar -C "$out.d" -xzf "$out.d/layer" && qemu-img convert -m 1 -O raw "$out.d/disk/disk.qcow2" "$out" && sync "$out"`, letter)
}

// chosen returns the works whose letters are named, or all.
func chosen(letters string) (some []work) {
	for _, w := range works {
		for l := range strings.SplitSeq(letters, ",") {
			if letters == "" || l == w.letter {
				some = append(some, w)
				break
			}
		}
	}
	return some
}
