// Package imagevm is the protocol between a launcher and the guest that runs a container image: the program to run, the files that
// it needs, and its result. Both programs use it, and knows neither Kubernetes nor QEMU.
package imagevm

import (
	"encoding/json"
	"fmt"
)

// OrdersName is the file among those that QEMU's firmware interface gives the guest (fw_cfg) in which its orders are.
const OrdersName = "opt/dev.berth/orders"

// PortName is the port on which the guest says how the image's program ended.
const PortName = "dev.berth.entry.0"

// The names of partitions: a layer's, from the lowest up, and the one that the guest writes to.
const (
	LayerPrefix = "berth-layer-"
	RoomName    = "berth-room"
)

// LayerName returns the name of a layer's partition.
func LayerName(n int) string { return fmt.Sprintf("%s%d", LayerPrefix, n) }

// Orders describe the program that the guest runs.
type Orders struct {
	Layers  []int    `json:"layers"` // from the lowest up
	Command []string `json:"command"`
	Env     []string `json:"env,omitempty"` // NAME=value
	User    string   `json:"user,omitempty"`
	Dir     string   `json:"dir,omitempty"`
	Stop    string   `json:"stop,omitempty"` // the signal that asks the program to end; SIGTERM if empty
	Host    string   `json:"host,omitempty"`
}

// Ended says how the image's program ended.
type Ended struct {
	Status int    `json:"status"`           // as a shell counts: 128 and more is a signal's
	Signal string `json:"signal,omitempty"` // the signal that ended it
	// Error is why it could not be run at all.
	Error string `json:"error,omitempty"`
}

// String returns a sentence for a person.
func (e Ended) String() string {
	switch {
	case e.Error != "":
		return "the image's program could not be run: " + e.Error
	case e.Signal != "":
		return fmt.Sprintf("the image's program was ended by the signal %s (status %d)", e.Signal, e.Status)
	}
	return fmt.Sprintf("the image's program ended with status %d", e.Status)
}

// maxError bounds what a guest may say: it goes into the machine's status.
const maxError = 500

// Read parses the data from the guest's port; nil if it is not valid.
func Read(said []byte) *Ended {
	var e Ended
	if json.Unmarshal(said, &e) != nil || e.Status < 0 || e.Status > 255 || len(e.Signal) > 32 {
		return nil
	}
	if len(e.Error) > maxError {
		e.Error = e.Error[:maxError] + "…"
	}
	return &e
}
