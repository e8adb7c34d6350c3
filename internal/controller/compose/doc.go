// Package compose reads a machine, its volumes and its instance, once, into one value: Machine. It finds out what instance the machine would be
// started with now, from its template, instance type, preference and claims, and what it lacks.
//
// It writes nothing.
package compose

import (
	"context"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/controller/observed"
)

// Reader reads machines.
type Reader struct {
	Read  *observed.Reader
	Dry   DryWriter
	Clock clock.PassiveClock
}

// DryWriter answers what the API server would make of an object, without making it.
type DryWriter interface {
	// KeepsSource returns an error if the API server would drop the claim's source, or refuses the claim.
	KeepsSource(ctx context.Context, claim client.Object) error
}
