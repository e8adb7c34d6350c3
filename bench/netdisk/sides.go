package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/bench/beside"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
)

// node is the name that libvirt gives the first disk's block node.
const node = "libvirt-1-format"

func host(port int) kubevirt.NetworkHost {
	return kubevirt.NetworkHost{Name: beside.HostAddress, Port: new(intstr.FromInt(port))}
}

func login() *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: "login"} }

type bench struct {
	dir, launcher string
	net           *beside.Namespace
	seconds       time.Duration
}

// side is a QEMU that exports its block node.
type side struct {
	socket string
	close  func()
}

// compare measures both sides in turns of one pattern, so that what else the machine does befalls both alike, and the one that
// goes first changes. The median of each counts.
func (b *bench) compare(ctx context.Context, t target, rounds int) (with, without []float64, err error) {
	through, blockdevs, err := b.startLauncher(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	defer through.close()
	plain, err := b.startPlain(ctx, t, blockdevs)
	if err != nil {
		return nil, nil, err
	}
	defer plain.close()
	for _, p := range patterns {
		got := map[*side][]float64{}
		for i := range rounds {
			order := []*side{through, plain}
			if i%2 == 1 {
				slices.Reverse(order)
			}
			for _, s := range order {
				speed, err := b.fio(ctx, s, p)
				if err != nil {
					return nil, nil, fmt.Errorf("%s: %w", p.name, err)
				}
				got[s] = append(got[s], speed)
			}
		}
		with, without = append(with, median(got[through])), append(without, median(got[plain]))
	}
	return with, without, nil
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

func (b *bench) startLauncher(ctx context.Context, t target) (s *side, blockdevs []string, err error) {
	dir, err := beside.Room(b.dir, "launcher")
	if err != nil {
		return nil, nil, err
	}
	if err := beside.Write(filepath.Join(dir, "mounts", t.volume.Name, netdisk.CredentialsDir), t.files); err != nil {
		return nil, nil, err
	}
	m := launcherapi.Machine{Namespace: "bench", Name: "vm", Emulate: true}
	m.Spec.Domain.Memory = &kubevirt.Memory{Guest: new(resource.MustParse("64Mi"))}
	m.Spec.Volumes = []kubevirt.Volume{t.volume}
	l, err := b.net.Start(ctx, beside.Orders{Program: b.launcher, Machine: m, Dir: dir})
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = l.Failed(err)
		}
	}()
	var domain string
	if err := beside.Eventually(ctx, "the guest", func() (err error) {
		if domain, err = l.Virsh(ctx, "list", "--name", "--state-running"); err == nil && domain == "" {
			err = errors.New("it does not run yet")
		}
		return err
	}); err != nil {
		return nil, nil, err
	}
	if _, err := l.Virsh(ctx, "suspend", domain); err != nil {
		return nil, nil, err
	}
	for _, text := range export(launcherapi.StateDir + "/export") {
		if answer, err := l.Virsh(ctx, "qemu-monitor-command", domain, text); err != nil || strings.Contains(answer, `"error"`) {
			return nil, nil, fmt.Errorf("export the disk: %w %s", err, answer)
		}
	}
	return &side{socket: l.Root + launcherapi.StateDir + "/export", close: l.Close}, l.Blockdevs(), nil
}

// export returns the commands that make QEMU serve the block node.
func export(socket string) []string {
	return []string{
		fmt.Sprintf(`{"execute": "nbd-server-start", "arguments": {"addr": {"type": "unix", "data": {"path": %q}}, "max-connections": 0}}`, socket),
		fmt.Sprintf(`{"execute": "block-export-add", "arguments": {"type": "nbd", "id": "bench", "node-name": %q, "name": "disk", "writable": true}}`, node),
	}
}

// startPlain runs QEMU manually with the same block nodes.
func (b *bench) startPlain(ctx context.Context, t target, blockdevs []string) (s *side, err error) {
	dir, err := beside.Room(b.dir, "plain")
	if err != nil {
		return nil, err
	}
	args := []string{"-nodefaults", "-display", "none", "-S", "-machine", "q35", "-m", "64", "-qmp", "unix:" + dir + "/qmp,server=on,wait=off"}
	if t.secret != "" {
		if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(t.secret), 0o644); err != nil {
			return nil, err
		}
		args = append(args, "-object", "secret,id=libvirt-1-storage-auth-secret0,format=base64,file="+dir+"/secret")
	}
	for _, d := range blockdevs {
		if strings.Contains(d, `"libvirt-1-`) {
			args = append(args, "-blockdev", strings.ReplaceAll(d, `"`+t.image+`"`, `"`+t.plain+`"`))
		}
	}
	args = append(args, "-device", "virtio-blk-pci,drive="+node+",share-rw=on")
	if err := beside.Command(ctx, "chown", "-R", beside.User+":"+beside.User, dir); err != nil {
		return nil, err
	}
	log := filepath.Join(dir, "log")
	cmd := b.net.Plain(args...)
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s = &side{socket: dir + "/export", close: func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }}
	defer func() {
		if err != nil {
			text, _ := os.ReadFile(log)
			s.close()
			err = fmt.Errorf("%w: %s", err, text)
		}
	}()
	var c net.Conn
	if err := beside.Eventually(ctx, "plain QEMU", func() (err error) { c, err = net.Dial("unix", dir+"/qmp"); return err }); err != nil {
		return s, err
	}
	defer c.Close()
	answers := json.NewDecoder(c)
	for _, text := range append([]string{"", `{"execute": "qmp_capabilities"}`}, export(s.socket)...) {
		if _, err := c.Write([]byte(text)); err != nil {
			return s, err
		}
		var answer map[string]any
		if err := answers.Decode(&answer); err != nil || answer["error"] != nil {
			return s, fmt.Errorf("export the disk: %w %v", err, answer)
		}
	}
	return s, nil
}
