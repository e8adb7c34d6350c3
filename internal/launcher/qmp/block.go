package qmp

import (
	"encoding/json"
	"errors"
	"fmt"
)

// FreePort returns the id of a PCI Express port without a device.
func (m *Monitor) FreePort() (string, error) {
	answer, err := m.Run("query-pci", nil)
	if err != nil {
		return "", err
	}
	type device struct {
		ID     string `json:"qdev_id"`
		Bridge *struct {
			Devices []json.RawMessage `json:"devices"`
		} `json:"pci_bridge"`
	}
	var buses []struct {
		Devices []device `json:"devices"`
	}
	if err := json.Unmarshal(answer, &buses); err != nil {
		return "", fmt.Errorf("read QEMU's list of devices: %w", err)
	}
	for _, b := range buses {
		for _, d := range b.Devices {
			if d.Bridge != nil && d.ID != "" && len(d.Bridge.Devices) == 0 {
				return d.ID, nil
			}
		}
	}
	return "", errors.New("every PCI port of the machine is taken; add the disk with bus scsi, or remove another first")
}

// Disk returns the block node under the disk of a volume, and the disk's size in bytes.
func (m *Monitor) Disk(volume string) (string, int64, error) {
	drives, err := m.Drives()
	if err != nil {
		return "", 0, err
	}
	d, ok := drives[volume]
	if !ok {
		return "", 0, fmt.Errorf("the guest has no disk %s", volume)
	}
	return d.Node, d.Size, nil
}

// NodeOf returns the name of the block node that has the file at path open.
func (m *Monitor) NodeOf(path string) (string, error) {
	answer, err := m.Run("query-named-block-nodes", map[string]bool{"flat": true})
	if err != nil {
		return "", err
	}
	var nodes []struct {
		Name   string `json:"node-name"`
		Driver string `json:"drv"`
		File   string `json:"file"`
	}
	if err := json.Unmarshal(answer, &nodes); err != nil {
		return "", fmt.Errorf("read QEMU's list of block nodes: %w", err)
	}
	for _, n := range nodes {
		if n.File == path && (n.Driver == "file" || n.Driver == "host_device") {
			return n.Name, nil
		}
	}
	return "", fmt.Errorf("QEMU has no block node for %s", path)
}

// drive is a disk of the guest: its topmost block node, and its size in bytes.
type drive struct {
	Node string
	Size int64
}

// Drives returns the guest's disks by volume. A CD drive without a medium is left out.
func (m *Monitor) Drives() (map[string]drive, error) {
	answer, err := m.Run("query-block", nil)
	if err != nil {
		return nil, err
	}
	var all []struct {
		Device   string `json:"qdev"`
		Inserted struct {
			Node  string `json:"node-name"`
			Image struct {
				Size int64 `json:"virtual-size"`
			} `json:"image"`
		} `json:"inserted"`
	}
	if err := json.Unmarshal(answer, &all); err != nil {
		return nil, fmt.Errorf("read QEMU's list of drives: %w", err)
	}
	out := map[string]drive{}
	for _, d := range all {
		if v, ok := VolumeOf(d.Device); ok && d.Inserted.Node != "" {
			out[v] = drive{d.Inserted.Node, d.Inserted.Image.Size}
		}
	}
	return out, nil
}

// Node is a block node of QEMU, with the options that it was opened with.
type Node struct {
	Name     string `json:"node-name"`
	Driver   string `json:"drv"`
	ReadOnly bool   `json:"ro"`
	Cache    struct {
		Direct  bool `json:"direct"`
		NoFlush bool `json:"no-flush"`
	} `json:"cache"`
}

// Nodes returns all block nodes by name.
func (m *Monitor) Nodes() (map[string]Node, error) {
	answer, err := m.Run("query-named-block-nodes", map[string]bool{"flat": true})
	if err != nil {
		return nil, err
	}
	var all []Node
	if err := json.Unmarshal(answer, &all); err != nil {
		return nil, fmt.Errorf("read QEMU's list of block nodes: %w", err)
	}
	out := map[string]Node{}
	for _, n := range all {
		out[n.Name] = n
	}
	return out, nil
}
