package imageupload

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/virtctl/bind"
	"github.com/berth-vm/berth/internal/virtctl/kube"
	claims "github.com/berth-vm/berth/pkg/claim"
)

const interval = 500 * time.Millisecond

// stage is the progress of a volume until it takes an upload.
type stage int

const (
	onItsWay stage = iota
	waitsForConsumer
	takesUpload
)

// ready waits until the volume takes the upload. A volume that waits for its first consumer would wait for ever, so it
// is bound if the user said where, and an error at once if not.
func (u *upload) ready(ctx context.Context) error {
	u.say("Waiting for PVC %s upload pod to be ready...", u.Name)
	ctx, cancel := context.WithTimeoutCause(ctx, u.Wait, errTooLong)
	defer cancel()
	last := "nothing is known of it yet"
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		claim, err := u.claim(ctx)
		if err != nil {
			return false, err
		}
		at, phase, err := u.stage(ctx, claim)
		if err != nil {
			return false, err
		}
		last = phase
		if at == waitsForConsumer {
			return false, u.bind(ctx, claim, phase)
		}
		if err := u.checkPlace(ctx, claim); err != nil {
			return false, err
		}
		return at == takesUpload, nil
	})
	if err != nil && errors.Is(context.Cause(ctx), errTooLong) {
		return fmt.Errorf("PVC %s upload pod is not ready after %s: %s", u.Name, u.Wait, last)
	}
	if err != nil {
		return err
	}
	u.say("Pod now ready")
	return nil
}

var errTooLong = errors.New("time limit")

func (u *upload) stage(ctx context.Context, claim *corev1.PersistentVolumeClaim) (stage, string, error) {
	if u.Claim {
		return u.claimStage(ctx, claim)
	}
	volume, err := kube.DataVolumes.Get(ctx, u.cluster, u.Name)
	if err != nil {
		return onItsWay, "", err
	}
	if volume == nil {
		return onItsWay, "", fmt.Errorf("DV %s not found... ", u.Name)
	}
	at, phase, err := volumeStage(volume, claim)
	if err != nil {
		return at, phase, u.stuck(err)
	}
	return at, phase, nil
}

// volumeStage reads a DataVolume's phase. The phase may be a moment behind the claim: one that is bound is not held.
func volumeStage(v *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) (stage, string, error) {
	_, why := message(v, cdiv1.DataVolumeReady)
	phase := string(v.Status.Phase)
	switch v.Status.Phase { //nolint:exhaustive // the others are on their way
	case cdiv1.UploadReady:
		return takesUpload, phase, nil
	case cdiv1.WaitForFirstConsumer, cdiv1.PendingPopulation:
		if claim != nil && claim.Status.Phase == corev1.ClaimPending && claim.Annotations[names.SelectedNode] == "" {
			return waitsForConsumer, phase, nil
		}
	case cdiv1.Failed:
		return onItsWay, phase, fmt.Errorf("Provisioning failed: %s", why) //nolint:staticcheck // the text clients know
	case cdiv1.Succeeded:
		return onItsWay, phase, fmt.Errorf("PVC %s already successfully populated: %w", v.Name, errAlreadyThere)
	}
	if reason, text := message(v, cdiv1.DataVolumeBound); reason == "ErrClaimNotValid" {
		return onItsWay, phase, fmt.Errorf("Claim not valid: %s", text) //nolint:staticcheck // the text clients know
	}
	return onItsWay, phase + ": " + why, nil
}

// claimStage reads the annotations of a claim that no DataVolume speaks for.
func (u *upload) claimStage(ctx context.Context, claim *corev1.PersistentVolumeClaim) (stage, string, error) {
	if claim == nil {
		return onItsWay, "", u.notFound()
	}
	phase := claim.Annotations[annPhase]
	switch {
	case phase == string(corev1.PodSucceeded):
		return onItsWay, phase, u.stuck(fmt.Errorf("PVC %s already successfully populated: %w", u.Name, errAlreadyThere))
	case phase == string(corev1.PodRunning) && claim.Annotations[annReady] == "true":
		return takesUpload, phase, nil
	case claim.Status.Phase == corev1.ClaimPending && claim.Annotations[names.SelectedNode] == "" && u.waits(ctx, claim):
		return waitsForConsumer, string(cdiv1.WaitForFirstConsumer), nil
	}
	said := string(claim.Status.Phase) + ", and nobody says that it is being filled"
	if reason := claim.Annotations[annState]; reason != "" {
		said = reason + ": " + claim.Annotations[annMessage]
	}
	if err := brokenClaim(claim); err != nil {
		return onItsWay, said, u.stuck(err)
	}
	return onItsWay, said, nil
}

// brokenClaim returns what a claim says that took the bytes and could not make a disk of them.
func brokenClaim(claim *corev1.PersistentVolumeClaim) error {
	if state.Of(state.Reason(claim.Annotations[annState])).Phase != cdiv1.Failed {
		return nil
	}
	return fmt.Errorf("Provisioning failed: %s", claim.Annotations[annMessage]) //nolint:staticcheck // the text clients know
}

// waits reports whether the claim's class binds for a consumer only. A class that may not be read is taken to bind at once.
func (u *upload) waits(ctx context.Context, claim *corev1.PersistentVolumeClaim) bool {
	name := ptr.Deref(claim.Spec.StorageClassName, "")
	if name == "" {
		return false
	}
	class, err := u.cluster.Core.StorageV1().StorageClasses().Get(ctx, name, metav1.GetOptions{})
	return err == nil && claims.Waits(class)
}

func (u *upload) bind(ctx context.Context, claim *corev1.PersistentVolumeClaim, phase string) error {
	if u.place == nil {
		kind := "DataVolume"
		if u.Claim {
			kind = "PersistentVolumeClaim"
		}
		return newHeld(ctx, u.cluster, kind, phase, claim.Name)
	}
	return bind.Bind(ctx, u.cluster, claim.Name, *u.place, u.out)
}

// checkPlace refuses to fill a volume that is where the user does not want it.
func (u *upload) checkPlace(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if u.place == nil || claim == nil {
		return nil
	}
	return u.place.Check(ctx, u.cluster, claim)
}
