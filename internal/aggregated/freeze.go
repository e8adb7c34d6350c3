package aggregated

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// freezeOptions is upstream's FreezeUnfreezeTimeout.
type freezeOptions struct {
	UnfreezeTimeout *metav1.Duration `json:"unfreezeTimeout"`
}

// freeze has the guest's agent freeze its filesystems. The launcher thaws them after unfreezeTimeout, or after launcherapi.FreezeFor: a guest
// is never frozen without an end.
func (s *Server) freeze(a asked) (int, any, error) {
	var o freezeOptions
	if err := a.into(&o); err != nil {
		return 0, nil, err
	}
	seconds := int64(launcherapi.FreezeFor.Seconds())
	if d := o.UnfreezeTimeout; d != nil && d.Duration != 0 {
		if seconds = int64(d.Seconds()); seconds <= 0 || seconds > mostFrozen {
			return 0, nil, apierrors.NewBadRequest(fmt.Sprintf("unfreezeTimeout %s is not between 1s and %dh", d.Duration, mostFrozen/3600))
		}
	}
	i, err := s.guest(a.Context(), a)
	if err != nil {
		return 0, nil, err
	}
	guest, said, err := s.Cluster.Open(a.Context(), i, launcherapi.FSFreezeVerb, fmt.Sprint(seconds))
	if err != nil {
		return 0, nil, fmt.Errorf("freeze the guest's filesystems: %w", err)
	}
	if said.Refused == "" {
		_ = guest.Close()
	}
	return came(i, said)
}

// mostFrozen is for how many seconds a guest may be frozen at most.
const mostFrozen = 24 * 3600

// tell has the guest's launcher carry out a verb that changes no object.
func (s *Server) tell(a asked, verb string) (int, any, error) {
	i, err := s.guest(a.Context(), a)
	if err != nil {
		return 0, nil, err
	}
	said, err := s.Cluster.Ask(a.Context(), i, verb)
	if err != nil {
		return 0, nil, fmt.Errorf("%s the guest: %w", verb, err)
	}
	return came(i, said)
}

// came returns the HTTP answer for the launcher's answer to a verb that changes no object.
func came(i *kubevirt.VirtualMachineInstance, said launcherapi.Said) (int, any, error) {
	switch {
	case said.NoAgent:
		return 0, nil, unable(i, noAgent)
	case said.Refused != "":
		return 0, nil, unable(i, said.Refused)
	}
	return http.StatusOK, nil, nil
}

// noAgent is the message for a missing guest agent that clients know.
const noAgent = "VMI does not have guest agent connected"
