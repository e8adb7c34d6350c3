package aggregated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// guest returns the instance of a request, if its guest runs.
func (s *Server) guest(ctx context.Context, a asked) (*kubevirt.VirtualMachineInstance, error) {
	i, err := s.Cluster.Instance(ctx, a.namespace, a.name)
	if err != nil {
		return nil, err
	}
	if !runs(i) || i.Status.Phase != kubevirt.PhaseRunning && !s.startedNow(ctx, i) {
		return nil, unable(i, "VMI is not running")
	}
	return i, nil
}

// startedNow reports whether the machine of an instance says already that its guest runs or is paused. The instance's own status may follow a
// moment later, and clients wait for that of the machine.
func (s *Server) startedNow(ctx context.Context, i *kubevirt.VirtualMachineInstance) bool {
	if i.Status.Phase != kubevirt.PhaseScheduled {
		return false
	}
	m, err := s.Cluster.Machine(ctx, i.Namespace, i.Name)
	return err == nil && metav1.IsControlledBy(i, m) &&
		(m.Status.PrintableStatus == kubevirt.StatusRunning || m.Status.PrintableStatus == kubevirt.StatusPaused)
}

func unable(i *kubevirt.VirtualMachineInstance, why string) error {
	return apierrors.NewConflict(instances, i.Name, errors.New(why))
}

// pause pauses or resumes the processors of a guest. It records the intent first, so that the machine controller reads the real
// state even if this process ends on the way, and the result afterwards.
func (s *Server) pause(a asked) (int, any, error) {
	var o options
	if err := a.into(&o); err != nil {
		return 0, nil, err
	}
	steps := map[string][2]string{
		launcherapi.PauseVerb: {kubevirt.Pausing, kubevirt.PausedTrue}, launcherapi.UnpauseVerb: {kubevirt.Unpausing, kubevirt.PausedFalse},
	}[a.verb]
	var i *kubevirt.VirtualMachineInstance
	before := ""
	status, body, err := s.carry(a, o.DryRun, func(ctx context.Context) (Change, error) {
		var err error
		if i, err = s.guest(ctx, a); err != nil {
			return Change{}, err
		}
		if why := launcherapi.Pausable(i.Spec); why != "" && a.verb == launcherapi.PauseVerb {
			return Change{}, apierrors.NewForbidden(instances, i.Name, errors.New(why))
		}
		before = i.Annotations[kubevirt.AnnPaused]
		return Change{Instance: i, Paused: steps[0]}, nil
	})
	if dry, _ := a.dry(o.DryRun); err != nil || dry {
		return status, body, err
	}
	said, err := s.Cluster.Ask(a.Context(), i, a.verb)
	if err != nil {
		return 0, nil, fmt.Errorf("%s the guest: %w", a.verb, err)
	}
	if said.Refused != "" {
		steps[1] = before // it is as it was
	}
	if steps[1] != "" {
		_, _, err = s.carry(a, nil, func(ctx context.Context) (Change, error) {
			i, err := s.guest(ctx, a)
			return Change{Instance: i, Paused: steps[1]}, err
		})
	}
	if said.Refused != "" {
		return 0, nil, unable(i, said.Refused)
	}
	return status, body, err
}

// inform returns the information that the guest's agent gives.
func (s *Server) inform(a asked, verb string) (int, any, error) {
	i, err := s.guest(a.Context(), a)
	if err != nil {
		return 0, nil, err
	}
	said, err := s.Cluster.Ask(a.Context(), i, verb)
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("ask the guest's agent: %w", err)
	case said.NoAgent:
		return 0, nil, unable(i, noAgent)
	case said.Refused != "":
		return 0, nil, unable(i, said.Refused)
	}
	// It is read and written again: a document from a pod is not handed to users as it is.
	kind := func(name string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: kubevirt.GroupVersion.String(), Kind: "VirtualMachineInstance" + name}
	}
	var answer any
	switch verb {
	case launcherapi.OSInfoVerb:
		answer = &kubevirt.GuestAgentInfo{}
	case launcherapi.FilesystemsVerb:
		answer = &kubevirt.GuestFilesystemList{}
	default:
		answer = &kubevirt.GuestUserList{}
	}
	if err := json.Unmarshal(said.Answer, answer); err != nil {
		return 0, nil, fmt.Errorf("read the launcher's answer: %w", err)
	}
	switch d := answer.(type) {
	case *kubevirt.GuestAgentInfo:
		d.TypeMeta = kind("GuestAgentInfo")
	case *kubevirt.GuestFilesystemList:
		d.TypeMeta = kind("FileSystemList")
	case *kubevirt.GuestUserList:
		d.TypeMeta = kind("GuestOSUserList")
	}
	return http.StatusOK, answer, nil
}
