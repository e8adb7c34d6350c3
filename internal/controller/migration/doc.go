// Package migration moves running guests to another node: it makes the target's launcher, its keys and the claims that disks are sent to, tells
// both launchers what to do, and writes the status. internal/decide/migration decides.
package migration

import (
	"k8s.io/utils/clock"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/attempts"
	"github.com/berth-vm/berth/internal/controller/grant"
	"github.com/berth-vm/berth/internal/controller/handover"
	"github.com/berth-vm/berth/internal/controller/movestatus"
	"github.com/berth-vm/berth/internal/controller/observed"
)

// Reconciler moves guests.
type Reconciler struct {
	Read     *observed.Reader
	Cluster  *cluster.Writer
	Clock    clock.PassiveClock
	Grants   *grant.Grants
	HandOver *handover.Recorder
	Tries    *attempts.Maker
	Status   *movestatus.Reporter

	// What this process remembers; what it does not know is found out or done again.
	Keyed  Keyed
	Places Places
}
