// Command netdisk measures a network disk through the launcher beside plain QEMU with the same -blockdev, on the same server. The
// launcher runs as in its pod: the same program, user and libvirt, in a network namespace of its own. Its QEMU and the plain
// one each export their block node over a unix socket, and fio reads and writes there, so that everything from the block
// node on is measured and no guest is in the way.
//
//	bin/measure/netdisk [-runtime 1s] [-rounds 11]
//
// It needs root and what hack/packages lists, and writes bench/netdisk/results.md. It does not measure guests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/bench/beside"
	"github.com/berth-vm/berth/test/netserver"
)

// goal is how much faster plain QEMU may be.
const goal = 1.1

// diskSize is more than the servers' caches matter for, and little enough to be written in a second.
const diskSize = 256 << 20

func main() {
	seconds := flag.Duration("runtime", time.Second, "how long each pattern runs in a round")
	rounds := flag.Int("rounds", 11, "how often each side is measured, in turns; the median counts")
	out := flag.String("o", "bench/netdisk/results.md", "`file` to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	report, worst, err := measure(ctx, *seconds, *rounds)
	stop()
	if err == nil {
		err = os.WriteFile(*out, []byte(report), 0o644)
	}
	if err == nil && worst > goal {
		err = fmt.Errorf("plain QEMU is %.2f times as fast; %.1f is the most", worst, goal)
	}
	fmt.Fprint(os.Stdout, report)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// target is a disk at a server.
type target struct {
	name   string
	volume kubevirt.Volume
	// files are those of its Secret, and secret what plain QEMU is given as the secret that its -blockdev names.
	files  map[string]string
	secret string
	// plain is the image that plain QEMU opens, if it is another than the launcher's: only one client at a time holds the lock of an
	// RBD image, and the client that wrote last would read twice as fast as the other.
	image, plain string
}

func measure(ctx context.Context, seconds time.Duration, rounds int) (report string, worst float64, err error) {
	dir, err := os.MkdirTemp("", "netdisk-bench-")
	if err != nil {
		return "", 0, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", 0, err
	}
	net, err := beside.NewNamespace(ctx)
	if err != nil {
		return "", 0, err
	}
	defer net.Close()
	targets, end, err := servers(dir)
	defer end()
	if err != nil {
		return "", 0, err
	}
	b := &bench{dir: dir, net: net, seconds: seconds}
	if b.launcher, err = beside.Build(ctx, dir); err != nil {
		return "", 0, err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "# Network disks through the launcher beside plain QEMU\n\nMeasured %s: the same -blockdev on the same server, fio on an export of the "+
		"block node, %s a pattern, median of %d rounds in turns. The ratio is plain QEMU's figure by the launcher's; at most %.1f. `make bench-netdisk`\n\n",
		time.Now().UTC().Format(time.DateOnly), seconds, rounds, goal)
	text.WriteString("| server | pattern | launcher | plain QEMU | ratio |\n|---|---|---|---|---|\n")
	for _, t := range targets {
		with, without, err := b.compare(ctx, t, rounds)
		if err != nil {
			return "", 0, fmt.Errorf("%s: %w", t.name, err)
		}
		for i, p := range patterns {
			ratio := without[i] / with[i]
			worst = max(worst, ratio)
			fmt.Fprintf(&text, "| %s | %s | %.0f %s | %.0f %s | %.2f |\n", t.name, p.name, with[i]/p.scale, p.unit, without[i]/p.scale, p.unit, ratio)
		}
	}
	return text.String(), worst, nil
}

// servers starts one of each kind with a disk that is written once from end to end.
func servers(dir string) (targets []target, end func(), err error) {
	var ends []func()
	end = func() {
		for _, e := range ends {
			e()
		}
	}
	full := filepath.Join(dir, "disk")
	if err := writeFull(full); err != nil {
		return nil, end, err
	}
	place := func(name string) string {
		d := filepath.Join(dir, name)
		_ = os.MkdirAll(d, 0o700)
		return d
	}
	shared := func(s kubevirt.VolumeSource) kubevirt.Volume { // so that the export may write beside the guest's device
		return kubevirt.Volume{Name: "disk", AccessMode: kubevirt.WriteShared, VolumeSource: s}
	}
	scsi, err := netserver.StartTGT(beside.HostAddress, place("tgt"))
	if err != nil {
		return nil, end, err
	}
	ends = append(ends, scsi.Close)
	lun, err := scsi.Add(full, "", "")
	if err != nil {
		return nil, end, err
	}
	targets = append(targets, target{name: "iSCSI (tgt)", volume: shared(kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{ISCSI: &kubevirt.ISCSISource{
		Host: host(scsi.Port), Portal: lun.Target, LUN: int32(lun.Number)}}})})
	nbd, err := netserver.StartNBD(beside.HostAddress, place("nbd"), false)
	if err != nil {
		return nil, end, err
	}
	ends = append(ends, nbd.Close)
	export, _, err := nbd.Add(full)
	if err != nil {
		return nil, end, err
	}
	targets = append(targets, target{name: "NBD (nbdkit)", volume: shared(kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{NBD: &kubevirt.NBDSource{Host: host(nbd.Port), Export: export}}})})
	ceph, err := netserver.StartCeph(beside.HostAddress, place("ceph"))
	if err != nil {
		return nil, end, err
	}
	ends = append(ends, ceph.Close)
	image, err := ceph.Add(full)
	if err != nil {
		return nil, end, err
	}
	plain, err := ceph.Add(full)
	if err != nil {
		return nil, end, err
	}
	source := &kubevirt.RBDSource{Monitors: []string{ceph.Monitor}, Pool: ceph.Pool, Image: image, User: ceph.User}
	source.SecretRef = login()
	return append(targets, target{name: "RBD (Ceph)", volume: shared(kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{RBD: source}}),
		files: map[string]string{"key": ceph.Key}, secret: ceph.Key, image: image, plain: plain}), end, nil
}

// writeFull makes a disk without a hole.
func writeFull(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	block := []byte(strings.Repeat("berth ", 1<<20))[:1<<20]
	for range diskSize / len(block) {
		if _, err := f.Write(block); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}
