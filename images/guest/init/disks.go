//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berth-vm/berth/images/hardware"
)

// disk describes a block device as sysfs does.
type disk struct {
	Name, Bus, Serial string
	Size              int64
}

func (d disk) String() string {
	return fmt.Sprintf("%s bus=%s serial=%s size=%d", d.Name, d.Bus, d.Serial, d.Size)
}

const sysBlock = "/sys/class/block"

// disks lists the whole disks that hold something, by name. A drive without a medium has size 0 and is left out.
func disks() []disk {
	entries, err := os.ReadDir("/sys/block")
	if err != nil {
		return nil
	}
	var all []disk
	for _, e := range entries {
		if d := readDisk(e.Name()); d.Size > 0 {
			all = append(all, d)
		}
	}
	return all
}

func readDisk(name string) disk {
	dir := filepath.Join(sysBlock, name)
	sectors, _ := strconv.ParseInt(hardware.ReadLine(filepath.Join(dir, "size")), 10, 64)
	target, _ := os.Readlink(dir)
	return disk{Name: name, Bus: busOf(target), Serial: serialOf(dir), Size: sectors * 512}
}

// busOf reads the bus off the path of the device in sysfs, e.g. ../../devices/pci0000:00/0000:00:1f.2/ata1/host0/...
// The innermost controller counts, so virtio-scsi, whose path holds both words, is scsi.
func busOf(path string) string {
	switch {
	case strings.Contains(path, "/usb"):
		return "usb"
	case strings.Contains(path, "/ata"):
		return "sata"
	case strings.Contains(path, "/nvme"):
		return "nvme"
	case strings.Contains(path, "/target"):
		return "scsi"
	case strings.Contains(path, "/virtio"):
		return "virtio"
	default:
		return "unknown"
	}
}

// serialOf looks in the three places where drivers put it: virtio-blk on the disk, nvme on the controller, and SCSI (so also SATA
// and USB) in page 0x80 of the vital product data, after a header of four bytes.
func serialOf(dir string) string {
	if s := hardware.ReadLine(filepath.Join(dir, "serial")); s != "" {
		return s
	}
	if s := hardware.ReadLine(filepath.Join(dir, "device", "serial")); s != "" {
		return s
	}
	page, err := os.ReadFile(filepath.Join(dir, "device", "vpd_pg80"))
	if err != nil || len(page) < 4 {
		return ""
	}
	return strings.Trim(string(page[4:]), " \x00")
}

func (g *guest) sayDisks() {
	for _, d := range disks() {
		g.say("disk %s", d)
	}
}

var errNoDisk = errors.New("no such disk")

// find turns what a command calls a disk into its device file: a kernel name (vdb, vda3), serial=S, or partition=LABEL. "data" is
// short for partition=berth-data, the area of the guest's own disk that belongs to tests.
// A disk that is on its way (hotplugged, probed in the background) is waited for.
func find(what string, patience time.Duration) (string, error) {
	deadline := time.After(patience)
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		if name := match(what); name != "" {
			return "/dev/" + name, nil
		}
		select {
		case <-again.C:
		case <-deadline:
			return "", fmt.Errorf("%w: %s (waited %s)", errNoDisk, what, patience)
		}
	}
}

func match(what string) string {
	if what == "data" {
		what = "partition=berth-data"
	}
	entries, err := os.ReadDir(sysBlock)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		name, dir := e.Name(), filepath.Join(sysBlock, e.Name())
		if name == what {
			return name
		}
		if s, ok := strings.CutPrefix(what, "serial="); ok && s != "" && s == serialOf(dir) && !isPartition(dir) {
			return name
		}
		if label, ok := strings.CutPrefix(what, "partition="); ok && label != "" && label == partitionLabel(dir) {
			return name
		}
	}
	return ""
}

func isPartition(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "partition"))
	return err == nil
}

func partitionLabel(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, "uevent"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if label, ok := strings.CutPrefix(strings.TrimSpace(line), "PARTNAME="); ok {
			return label
		}
	}
	return ""
}
