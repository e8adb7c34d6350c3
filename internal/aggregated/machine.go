package aggregated

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// options are the options of all verbs; each reads its own.
type options struct {
	Paused             bool     `json:"paused"`
	GracePeriod        *int64   `json:"gracePeriod"`        // of stop
	GracePeriodSeconds *int64   `json:"gracePeriodSeconds"` // of restart
	DryRun             []string `json:"dryRun"`
}

// machine carries out a verb on a machine.
func (s *Server) machine(a asked) (int, any, error) {
	switch a.verb {
	case "start", "stop", "restart":
	case "addvolume", "removevolume":
		return s.volume(a, s.machineVolume)
	case "migrate":
		return s.migrate(a)
	case "memorydump", "removememorydump":
		return memoryDump(a)
	default:
		return 0, nil, apierrors.NewNotFound(machines, a.name+"/"+a.verb)
	}
	var o options
	if err := a.into(&o); err != nil {
		return 0, nil, err
	}
	for _, grace := range []*int64{o.GracePeriod, o.GracePeriodSeconds} {
		if grace != nil && *grace < 0 {
			return 0, nil, apierrors.NewBadRequest("the grace period is negative")
		}
	}
	return s.carry(a, o.DryRun, func(ctx context.Context) (Change, error) {
		m, err := s.Cluster.Machine(ctx, a.namespace, a.name)
		if err != nil {
			return Change{}, err
		}
		i, err := s.Cluster.Instance(ctx, a.namespace, a.name)
		if err != nil && !apierrors.IsNotFound(err) {
			return Change{}, err
		}
		if err != nil {
			i = nil
		}
		switch a.verb {
		case "start":
			return start(m, i, o.Paused)
		case "stop":
			return stop(m, i, o.GracePeriod)
		}
		return restart(m, i, o.GracePeriodSeconds)
	})
}

// instance carries out a verb on a running guest.
func (s *Server) instance(a asked) (int, any, error) {
	switch a.verb {
	case "addvolume", "removevolume":
		return s.volume(a, s.instanceVolume)
	case launcherapi.PauseVerb, launcherapi.UnpauseVerb:
		return s.pause(a)
	case "keep":
		return s.keep(a)
	case "freeze":
		return s.freeze(a)
	case "unfreeze":
		return s.tell(a, launcherapi.FSThawVerb)
	case launcherapi.ResetVerb, launcherapi.SoftRebootVerb:
		return s.tell(a, a.verb)
	}
	return 0, nil, apierrors.NewNotFound(instances, a.name+"/"+a.verb)
}

// volume reads a request for a volume and carries it out.
func (s *Server) volume(a asked, change func(context.Context, asked, kubevirt.VolumeRequest) (Change, error)) (int, any, error) {
	var r kubevirt.VolumeRequest
	var dry *[]string
	var err error
	if a.verb == "addvolume" {
		r.AddVolumeOptions = &kubevirt.AddVolumeOptions{}
		err, dry = a.into(r.AddVolumeOptions), &r.AddVolumeOptions.DryRun
	} else {
		r.RemoveVolumeOptions = &kubevirt.RemoveVolumeOptions{}
		err, dry = a.into(r.RemoveVolumeOptions), &r.RemoveVolumeOptions.DryRun
	}
	if err == nil {
		err = volumeRequest(r)
	}
	if err != nil {
		return 0, nil, err
	}
	wanted := *dry
	*dry = nil
	return s.carry(a, wanted, func(ctx context.Context) (Change, error) { return change(ctx, a, r) })
}

func (s *Server) machineVolume(ctx context.Context, a asked, r kubevirt.VolumeRequest) (Change, error) {
	m, err := s.Cluster.Machine(ctx, a.namespace, a.name)
	if err != nil {
		return Change{}, err
	}
	return changeMachine(m, r)
}

func (s *Server) instanceVolume(ctx context.Context, a asked, r kubevirt.VolumeRequest) (Change, error) {
	i, err := s.Cluster.Instance(ctx, a.namespace, a.name)
	if err != nil {
		return Change{}, err
	}
	return changeInstance(i, r)
}

// carryTries is how often a change is computed again because of a conflict.
const carryTries = 5

// carry works a change out and carries it out, again if an object changed in between.
func (s *Server) carry(a asked, dryRun []string, change func(context.Context) (Change, error)) (int, any, error) {
	dry, err := a.dry(dryRun)
	if err != nil {
		return 0, nil, err
	}
	for range carryTries {
		var c Change
		if c, err = change(a.Context()); err != nil || dry {
			break
		}
		if err = s.Cluster.Carry(a.Context(), c); err == nil || !apierrors.IsConflict(err) {
			break
		}
	}
	return http.StatusAccepted, nil, err
}
