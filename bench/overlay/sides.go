package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/bench/beside"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// fullSize is how long the master of a clone is. Half of it is data.
const fullSize = 4 << 30

// memory is the memory of each guest.
const memory = "128Mi"

type bench struct {
	dir, launcher string
	net           *beside.Namespace
	master, full  string // a guest's disk, and one that takes a while to copy
	// args are how the launcher's QEMU was started, and length is how long its overlay may become.
	args   []string
	length int64
}

// writeFull makes the master of a clone: data and holes by turns.
func (b *bench) writeFull() (string, error) {
	name := filepath.Join(b.dir, "full.img")
	f, err := os.Create(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	noise := rand.NewChaCha8([32]byte{})
	for at := int64(0); at < fullSize; at += int64(2 * len(block)) {
		_, _ = noise.Read(block)
		if _, err := f.WriteAt(block, at); err != nil {
			return "", err
		}
	}
	return name, errors.Join(f.Truncate(fullSize), f.Sync())
}

// inTurns runs both, and the other one first every second time.
func inTurns(round int, all ...func() error) error {
	if round%2 == 1 {
		slices.Reverse(all)
	}
	for _, one := range all {
		syscall.Sync() // what the one before wrote is not to be written during this one
		if err := one(); err != nil {
			return err
		}
	}
	return nil
}

// boots measures a first boot on both sides.
func (b *bench) boots(ctx context.Context, round int, t *took) error {
	return inTurns(round, func() error {
		l, dir, _, err := b.start(ctx, b.master, kubevirt.CopyOnWrite)
		if err != nil {
			return err
		}
		defer l.Close()
		info, err := os.Stat(filepath.Join(dir, "copies", "root", "disk.qcow2"))
		if err != nil {
			return err
		}
		b.args, b.length = l.Args, info.Size()
		return t.launched(b.firstLine(ctx, l.QEMU, filepath.Join(dir, "log")))
	}, func() error { return b.bootsPlain(ctx, t) })
}

func (t *took) launched(d time.Duration, err error) error {
	t.launcher = append(t.launcher, d)
	return err
}

// start starts a launcher whose machine has a copy of the master, and says how long it took until its QEMU was there.
func (b *bench) start(ctx context.Context, master string, mode kubevirt.CopyMode) (*beside.Launcher, string, time.Duration, error) {
	dir, err := beside.Room(b.dir, "launcher")
	if err != nil {
		return nil, "", 0, err
	}
	volume := kubevirt.Volume{Name: "root", Copy: &kubevirt.DiskCopy{Mode: mode},
		VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "golden"}}}
	disk := filepath.Join(dir, "volumes", volume.Name, "disk.img")
	if err := errors.Join(os.MkdirAll(filepath.Dir(disk), 0o755), os.MkdirAll(filepath.Join(dir, "copies", volume.Name), 0o755), os.Link(master, disk)); err != nil {
		return nil, "", 0, err
	}
	m := launcherapi.Machine{Namespace: "bench", Name: "vm", Emulate: true}
	m.Spec.Domain.Memory = &kubevirt.Memory{Guest: new(resource.MustParse(memory))}
	m.Spec.Volumes = []kubevirt.Volume{volume}
	begin := time.Now()
	l, err := b.net.Start(ctx, beside.Orders{Program: b.launcher, Machine: m, Dir: dir})
	return l, dir, time.Since(begin), err
}

// bootsPlain makes an overlay of the same kind and boots the same machine from it.
func (b *bench) bootsPlain(ctx context.Context, t *took) error {
	dir, err := beside.Room(b.dir, "plain")
	if err != nil {
		return err
	}
	overlay, log := filepath.Join(dir, "disk.qcow2"), filepath.Join(dir, "log")
	if err := errors.Join(beside.Command(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-b", b.master, "-F", "raw", overlay),
		os.Truncate(overlay, b.length), beside.Command(ctx, "chown", "-R", beside.User+":"+beside.User, dir)); err != nil {
		return err
	}
	cmd := b.net.Plain(b.machine(overlay, log)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	d, err := b.firstLine(ctx, cmd.Process.Pid, log)
	t.plain = append(t.plain, d)
	return err
}

// machine returns the machine that the launcher had, without what libvirt needs to control it.
func (b *bench) machine(overlay, log string) (args []string) {
	files := strings.NewReplacer("/run/berth/volumes/root/disk.img", b.master, "/run/berth/copies/root/disk.qcow2", overlay)
	for i := 1; i < len(b.args); i++ {
		switch option := b.args[i]; option {
		case "-S":
		case "-name", "-mon", "-sandbox", "-vnc":
			i++
		case "-object", "-chardev":
			i++
			switch value := b.args[i]; {
			case strings.Contains(value, "charserial0"):
				args = append(args, option, "file,id=charserial0,path="+log)
			case strings.Contains(value, "charchannel0"):
				args = append(args, option, "null,id=charchannel0")
			case option == "-object" && !strings.Contains(value, "secret"):
				args = append(args, option, value)
			}
		default:
			args = append(args, files.Replace(option))
		}
	}
	return append(args, "-display", "none")
}

// firstLine returns how long after the start of its QEMU a guest said something.
func (b *bench) firstLine(ctx context.Context, qemu int, log string) (time.Duration, error) {
	err := beside.Eventually(ctx, "the guest's first line", func() error {
		text, err := os.ReadFile(log)
		if err == nil && !bytes.Contains(text, []byte("berth-guest:")) {
			err = errors.New("it has not come")
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return age(qemu)
}

// age returns how long a process has been there.
func age(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	up, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, err
	}
	now, err := strconv.ParseFloat(strings.Fields(string(up))[0], 64)
	if err != nil {
		return 0, err
	}
	const startTime, ticks = 19, 100 // a field of proc(5), counted from the one behind the name; and the kernel's USER_HZ
	_, rest, _ := strings.Cut(string(text), ") ")
	began, err := strconv.ParseFloat(strings.Fields(rest)[startTime], 64)
	return time.Duration((now - began/ticks) * float64(time.Second)), err
}

// clones measures a whole copy on both sides.
func (b *bench) clones(ctx context.Context, round int, t *took) error {
	until := func(mode kubevirt.CopyMode) (time.Duration, error) {
		l, dir, d, err := b.start(ctx, b.full, mode)
		if err != nil {
			return 0, err
		}
		l.Close()
		return d, os.RemoveAll(filepath.Join(dir, "copies"))
	}
	return inTurns(round, func() error {
		overlay, err := until(kubevirt.CopyOnWrite)
		if err != nil {
			return err
		}
		syscall.Sync()
		whole, err := until(kubevirt.CopyClone)
		return t.launched(whole-overlay, err)
	}, func() error {
		out := filepath.Join(b.dir, "converted.qcow2")
		begin := time.Now()
		err := beside.Command(ctx, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", b.full, out)
		t.plain = append(t.plain, time.Since(begin))
		return errors.Join(err, os.Remove(out))
	})
}
