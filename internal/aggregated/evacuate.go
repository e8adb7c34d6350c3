package aggregated

import (
	"context"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
)

// evacuateOptions is upstream's EvacuateCancelOptions.
type evacuateOptions struct {
	DryRun             []string `json:"dryRun"`
	EvacuationNodeName string   `json:"evacuationNodeName"`
}

// stayMachine withdraws the request that a machine's guest leaves its node.
func (s *Server) stayMachine(a asked) (int, any, error) {
	return s.stay(a, func(ctx context.Context) (*kubevirt.VirtualMachineInstance, error) {
		m, err := s.Cluster.Machine(ctx, a.namespace, a.name)
		if err != nil {
			return nil, err
		}
		i, err := s.Cluster.Instance(ctx, a.namespace, a.name)
		switch {
		case apierrors.IsNotFound(err):
			return nil, conflict(m, "VMI is not started")
		case err == nil && !cluster.OwnedBy(i, m.UID):
			return nil, conflict(m, "VMI %s is not this VM's", i.Name)
		}
		return i, err
	})
}

// stayInstance has an instance's guest stay.
func (s *Server) stayInstance(a asked) (int, any, error) {
	return s.stay(a, func(ctx context.Context) (*kubevirt.VirtualMachineInstance, error) {
		return s.Cluster.Instance(ctx, a.namespace, a.name)
	})
}

// stay withdraws the request that a guest leaves its node. A migration that has begun continues: delete it to end it. The request
// is a mark on the launcher, which the machine controller removes by its name, so a later request is followed.
func (s *Server) stay(a asked, find func(context.Context) (*kubevirt.VirtualMachineInstance, error)) (int, any, error) {
	var o evacuateOptions
	if err := a.into(&o); err != nil {
		return 0, nil, err
	}
	_, _, err := s.carry(a, o.DryRun, func(ctx context.Context) (Change, error) {
		i, err := find(ctx)
		if err != nil {
			return Change{}, err
		}
		if n := i.Status.EvacuationNodeName; n != "" && o.EvacuationNodeName != "" && n != o.EvacuationNodeName {
			return Change{}, unable(i, fmt.Sprintf("it is to leave node %s, not %s", n, o.EvacuationNodeName))
		}
		if !runs(i) {
			return Change{}, nil
		}
		mark, err := s.Cluster.Evacuation(ctx, i)
		if err != nil || mark == "" {
			return Change{}, err
		}
		return Change{Instance: i, Stays: mark}, nil
	})
	return http.StatusOK, nil, err
}
